"""The forms of words in env.yaml: names, versions, paths, each with the mistakes that people make in it."""

from __future__ import annotations

from torchyard.matrix.shape import Choice, Printable, Word

SLUG = r"[a-z0-9]+(-[a-z0-9]+)*"

_TWO_PARTS = (r"([0-9]+)\.([0-9]+)", r'name the release in full: "\1.\2.0"')
_FREE = (r"(latest|newest|stable|nightly|.*[<>=~*^,].*|.*\.x)", "one exact version; nothing here moves by itself")
_LOCAL = (r"([0-9.]+)\+(cu|cpu|rocm).*", r'the CUDA line has its own key; write "\1"')
_V = (r"v(.+)", r'without the v: "\1"')

NAME = Word(
    what="a name of small letters, digits and hyphens",
    pattern=SLUG,
    example="a100",
    longest=40,
    numbers=True,
    hints=((r"[A-Za-z0-9_. -]+", "small letters, digits and single hyphens only; for example a100"),),
)
SITE_NAME = Word(what="the name of a site", pattern=SLUG, example="lab", longest=40, numbers=True)
ENTRY_NAME = Word(what="the name of a hardware entry", pattern=SLUG, example="a100", longest=40, numbers=True)
RELEASE = Word(
    what="a release of torch",
    pattern=r"[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?",
    example='"2.14.1"',
    longest=30,
    hints=(_TWO_PARTS, _LOCAL, _V, _FREE),
)
PARTNER = Word(
    what="a version, or auto for the one that belongs to torch",
    pattern=r"auto|[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?",
    example="auto",
    longest=30,
    hints=(_TWO_PARTS, _LOCAL, _V, _FREE),
)
CUDA = Word(
    what="a CUDA line, or auto",
    pattern=r"auto|[0-9]{2}\.[0-9]",
    example='"13.0"',
    longest=8,
    hints=(
        (r"([0-9]+\.[0-9]+)\.[0-9]+", r'without the patch: "\1"'),
        (r"cu([0-9]{2})([0-9])", r'write "\1.\2"'),
        (r"([0-9]{2})", r'with its minor: "\1.0"'),
        (r"(none|cpu|no|off)", "a CPU image is an entry without gpu"),
        _V,
    ),
)
CUDNN = Word(
    what="a version of cuDNN, or auto",
    pattern=r"auto|[0-9]+(\.[0-9]+){1,3}",
    example="auto",
    longest=20,
    hints=((r"([0-9]+)", "with its minor at least; auto takes the one that this torch build was made with"),),
)
PYTHON_VERSION = Word(
    what='a Python such as "3.11", or auto for the distribution\'s own',
    pattern=r"auto|3\.[0-9]{1,2}t?",
    example='"3.11"',
    longest=8,
    hints=(
        (r"(3\.[0-9]{1,2})\.[0-9]+", r'without the patch, which is the distribution\'s: "\1"'),
        (r"(?:python|py|cp)-?3\.?([0-9]{1,2})", r'write "3.\1"'),
        (r"(>=|~=|==)?(3\.[0-9]{1,2})(\.\*)?", r'write "\2"'),
    ),
)
DRIVER = Word(
    what="a driver version",
    pattern=r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,2})?",
    example='"580.65.06"',
    longest=12,
    numbers=False,
    hints=((r"[Rr]?([0-9]{3})", r'the whole version, as nvidia-smi prints it: "\1.65.06"'),),
)
OS = Word(
    what="a distribution such as debian-12",
    pattern=r"[a-z]+[a-z0-9]*-[0-9][0-9.]*",
    example="debian-12",
    longest=30,
    names="os",
    hints=(
        (r"(debian|ubuntu)[:_ ]?([0-9][0-9.]*).*", r"write \1-\2"),
        (r"bookworm", "write debian-12"),
        (r"trixie", "write debian-13"),
        (r"noble", "write ubuntu-24.04"),
        (r"jammy", "write ubuntu-22.04"),
    ),
)
IMAGE_REF = Word(
    what="an image reference with a tag or digest",
    pattern=r"[a-z0-9]+((\.|__?|-+|:|/)[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    example="debian:12-slim",
    longest=300,
    hints=((r"https?://(.*)", r"without the scheme: \1"),),
)
REGISTRY = Word(
    what="a registry, host and path without scheme",
    pattern=r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*",
    example="registry.example.com/ml",
    longest=200,
    hints=(
        (r"https?://(.*?)/?", r"without the scheme: \1"),
        (r".*@.*", "no user or password here: docker login keeps them"),
        (r"(.*)/", r"without the last slash: \1"),
    ),
)
PATH = Word(
    what="the path of a file beside env.yaml",
    pattern=r"(?!\.{1,2}(/|$))[A-Za-z0-9_.][A-Za-z0-9_.-]*(/(?!\.{1,2}(/|$))[A-Za-z0-9_.][A-Za-z0-9_.-]*)*",
    example="requirements.txt",
    longest=200,
    hints=(
        (r"/.*", "a path inside the project, relative to env.yaml"),
        (r"\./(.*)", r"write \1"),
        (r"(.*/)?\.\.(/.*)?", "the file has to be inside the project: no .."),
        (r"(?s)[A-Z]+ .*", "put the instructions in a file and name it here"),
    ),
)
APT = Word(
    what="the name of a Debian or Ubuntu package",
    pattern=r"[a-z0-9][a-z0-9+.-]+",
    example="git",
    longest=100,
    hints=(
        (r"(.+?)[=:/].*", r"the name alone, \1: the lock holds version and architecture"),
        (r"-.*", "no options of apt here"),
    ),
)
REQUIREMENT = Printable(what="a requirement such as numpy==2.3.1", longest=500)
VARIABLE = Word(
    what="the name of an environment variable",
    pattern=r"[A-Za-z_][A-Za-z0-9_]*",
    example="NCCL_DEBUG",
    longest=100,
)
MARCH = Word(
    what="a value of gcc's -march",
    pattern=r"[a-z0-9][a-z0-9_.+-]*",
    example="x86-64-v3",
    longest=40,
    names="march",
    hints=((r"-march=(.*)", r"write \1"),),
)
GPU = Word(
    what="the name of a GPU",
    pattern=r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]*",
    example="rtx-4090",
    longest=80,
    numbers=True,
    names="gpu",
)
ARCH = Choice(
    values=("x86_64", "aarch64"),
    instead=(
        ("amd64", "write x86_64"),
        ("x86-64", "write x86_64"),
        ("arm64", "write aarch64"),
        ("arm", "write aarch64"),
    ),
)
SIZE = Word(
    what="a size with its unit",
    pattern=r"[1-9][0-9]{0,5}[mgt]",
    example="16g",
    longest=8,
    hints=(
        (r"([1-9][0-9]*)", r"name the unit: \1g, or m or t in place of g; \1 alone would be bytes"),
        (r"([0-9]+) ?([kKmMgGtT])i?[bB]?", r"write \1 and m, g or t, for example 16g"),
    ),
)
BYTES = Word(
    what="a size in MB, GB or TB, powers of ten as registries count them",
    pattern=r"[1-9][0-9]{0,5}(\.[0-9]{1,3})? ?[MGT]B",
    example='"4 GB"',
    longest=12,
    hints=(
        (r"([1-9][0-9.]*) ?([mMgGtT])(?:i?[bB])?", r'with MB, GB or TB, for example "\1 GB"'),
        (r"[0-9.]+", 'with its unit, for example "4 GB"'),
    ),
)
CAPABILITY = Word(
    what="a compute capability such as 8.6, 9.0a or 8.0+PTX",
    pattern=r"[0-9]{1,2}\.[0-9][af]?(\+PTX)?",
    example='"8.6"',
    longest=10,
    floats=True,
    hints=(
        (r"(?:sm_|compute_)?([0-9]{1,2})([0-9])([af]?)", r'write "\1.\2\3"'),
        (r"([0-9]{1,2}\.[0-9]) PTX", r'write "\1+PTX"'),
        (r".*[,;].*", 'one item of the list each: ["8.0", "8.6"]'),
    ),
)
