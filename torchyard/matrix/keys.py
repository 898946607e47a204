"""Every key of env.yaml: its kind, what it means, its default and an example; reader, schema and docs follow."""

from __future__ import annotations

from torchyard.matrix.shape import Choice, Items, Key, Kind, OneOf, Printable, Record, Table, Whole, Word
from torchyard.matrix.words import (
    APT,
    ARCH,
    BYTES,
    CAPABILITY,
    CUDA,
    CUDNN,
    DRIVER,
    ENTRY_NAME,
    GPU,
    IMAGE_REF,
    MARCH,
    NAME,
    OS,
    PARTNER,
    PATH,
    PYTHON_VERSION,
    REGISTRY,
    RELEASE,
    REQUIREMENT,
    SITE_NAME,
    SIZE,
    SLUG,
    VARIABLE,
)

AXES = ("base", "python", "torch", "torchvision", "torchaudio", "cuda", "cudnn", "blas", "build")

PYTHON = OneOf(
    scalar=PYTHON_VERSION,
    table=Record(
        what="python",
        keys=(
            Key(name="version", kind=PYTHON_VERSION, doc="Which Python.", example='"3.12"', required=True),
            Key(
                name="from",
                kind=Choice(values=("distribution", "standalone")),
                doc="The distribution's package, or a standalone build that runs on any distribution.",
                default="distribution",
                example="standalone",
            ),
        ),
    ),
)
BASE = Record(
    what="base",
    keys=(
        Key(
            name="from",
            kind=Choice(
                values=("archive", "image"),
                instead=(("registry", "write image"), ("debootstrap", "write archive"), ("scratch", "write archive")),
            ),
            doc="`archive`: bootstrapped from the distribution's packages, the same bytes each time. "
            "`image`: a registry image, pinned by digest in the lock. Never switched by itself.",
            example="archive",
            required=True,
        ),
        Key(
            name="os",
            kind=OS,
            doc="The distribution. With `from: image` it may be left out where the reference says it.",
            example="debian-12",
        ),
        Key(name="ref", kind=IMAGE_REF, doc="With `from: image`: the image.", example="debian:12-slim"),
    ),
    example="base: {from: archive, os: debian-12}",
    elsewhere={"image": "with from: image, the reference is ref:.", "distro": "the distribution is os:."},
)

SOFTWARE: tuple[Key, ...] = (
    Key(
        name="base",
        kind=BASE,
        doc="What the image starts from.",
        default="{from: archive, os: debian-12}",
        example="{from: archive, os: debian-12}",
    ),
    Key(
        name="python",
        kind=PYTHON,
        doc="The Python of the image, in quotes.",
        default="auto, the distribution's own",
        example='"3.11"',
    ),
    Key(name="torch", kind=RELEASE, doc="The torch release, in full.", example='"2.14.1"'),
    Key(
        name="torchvision",
        kind=PARTNER,
        doc="torchvision, if the image shall have it.",
        default="not installed",
        example="auto",
    ),
    Key(
        name="torchaudio",
        kind=PARTNER,
        doc="torchaudio, if the image shall have it.",
        default="not installed",
        example="auto",
    ),
    Key(
        name="cuda",
        kind=CUDA,
        doc="The CUDA line of the torch build. `auto`: the release's default build where GPU and "
        "driver allow it, else the newest line that fits. An entry without gpu takes the CPU build.",
        default="auto",
        example='"12.8"',
    ),
    Key(
        name="cudnn",
        kind=CUDNN,
        doc="cuDNN. A wheel carries the one it was made with, so only a source build can have another.",
        default="auto",
        example="auto",
    ),
    Key(
        name="blas",
        kind=Choice(values=("auto", "mkl", "openblas")),
        doc="`auto`: what the torch build carries. A source build chooses.",
        default="auto",
        example="openblas",
    ),
    Key(
        name="build",
        kind=Choice(values=("wheel", "source"), instead=(("pip", "write wheel"), ("binary", "write wheel"))),
        doc="The released wheel, or a build from source with the switches under `source`.",
        default="wheel",
        example="source",
    ),
    Key(
        name="compression",
        kind=Choice(values=("gzip", "zstd"), instead=(("gz", "write gzip"), ("zst", "write zstd"))),
        doc="How the image's layers are compressed. `zstd` unpacks faster, and is refused where what reads images at "
        "the entry's site does not read it.",
        default="gzip",
        example="zstd",
    ),
)

FLAG_VALUE = OneOf(scalar=Printable(what="the value of a switch", longest=300, numbers=True))
SOURCE = Record(
    what="source",
    keys=(
        Key(
            name="ref",
            kind=Word(
                what="a tag or branch of the PyTorch repository",
                pattern=r"[A-Za-z0-9][A-Za-z0-9_./-]*",
                example="v2.14.1",
                longest=100,
            ),
            doc="What is built.",
            default="the tag of the torch release",
            example="v2.14.1",
        ),
        Key(
            name="commit",
            kind=Word(
                what="a commit of 40 hexadecimal digits",
                pattern=r"[0-9a-f]{40}",
                example="3f5b2c…",
                longest=40,
                numbers=True,
            ),
            doc="The commit, where it is not the one that the release wheel names.",
            default="the one in the release wheel",
            example='"0123456789abcdef0123456789abcdef01234567"',
        ),
        Key(
            name="archive",
            kind=Word(
                what="a sha256 of 64 hexadecimal digits",
                pattern=r"[0-9a-f]{64}",
                example="9f86d081…",
                longest=64,
                numbers=True,
                hints=((r"(?i)sha256:([0-9a-f]{64})", r"the digits alone: \1"),),
            ),
            doc="The sha256 of the release's source archive, submodules included, which is then taken in place of git.",
            default="git, at the commit",
            example='"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
        ),
        Key(
            name="flags",
            kind=Table(
                key=Word(
                    what="a switch of the PyTorch build",
                    pattern=r"[A-Z][A-Za-z0-9_]*",
                    example="USE_DISTRIBUTED",
                    longest=60,
                    names="flag",
                ),
                of=FLAG_VALUE,
            ),
            doc="Switches of the PyTorch build; docs/switches.md has every one, with its type and meaning.",
            default="PyTorch's own",
            example="{USE_DISTRIBUTED: 1}",
            empty=True,
        ),
        Key(
            name="cpu",
            kind=MARCH,
            doc="The -march of the build; never native, which would depend on the build machine.",
            default="x86-64-v3 on x86_64, armv8.2-a on aarch64",
            example="x86-64-v3",
        ),
        Key(
            name="arch_list",
            kind=OneOf(items=Items(of=CAPABILITY, least=1, most=30)),
            doc="The compute capabilities to compile for.",
            default="those of the entry's GPUs",
            example='["8.0", "8.6+PTX"]',
        ),
        Key(
            name="gcc",
            kind=Whole(least=9, most=20),
            doc="The major version of gcc.",
            default="the newest that fits",
            example="13",
        ),
        Key(
            name="jobs",
            kind=Whole(least=1, most=1024),
            doc="Parallel compiler jobs; does not change the image.",
            default="what cores and memory allow",
            example="8",
        ),
    ),
    elsewhere={
        "march": "the -march is cpu:.",
        "blas": "blas is a key of software.",
        "max_jobs": "write jobs:.",
        **dict.fromkeys(("url", "repository", "repo", "git"), "a mirror of the repository stands in the mirrors file."),
    },
)

PACKAGE_KEYS: tuple[Key, ...] = (
    Key(
        name="apt",
        kind=Items(of=APT),
        doc="Packages of the distribution, by name; the lock pins them.",
        default="none",
        example="[git, tmux]",
        empty=True,
    ),
    Key(
        name="pip",
        kind=OneOf(scalar=PATH, items=Items(of=REQUIREMENT)),
        doc="A requirements file beside env.yaml, or the "
        "requirements themselves. Wheels only; torch is held by the lock.",
        default="none",
        example="requirements.txt",
        empty=True,
    ),
)
_NOT_BUILT = "requirements that exist only as source are not built: put a wheel into a directory of pip's find-links."
PACKAGE_SET = Key(
    name="name",
    kind=Word(
        what="a name for a set of packages, which does not end in dev: the dev target has that ending",
        pattern=r"(?!([a-z0-9-]*-)?dev$)" + SLUG,
        example="nlp",
        longest=20,
    ),
    doc="The name of this entry's set, which its image's id ends in.",
    default="a short hash of the set",
    example="nlp",
)
ENV = Key(
    name="env",
    kind=Table(key=VARIABLE, of=Printable(what="the value of a variable", numbers=True)),
    doc="Environment variables of the image. Values are text; nothing in them is expanded.",
    default="none",
    example='{HF_HUB_OFFLINE: "1"}',
    empty=True,
)
ENTRY_ENV = Key(
    name="env",
    kind=Table(key=VARIABLE, of=OneOf(scalar=Printable(what="the value of a variable", numbers=True), null=True)),
    doc="Over the file's `env`, variable by variable; an empty value takes one away.",
    default="the file's",
    example='{HF_HUB_OFFLINE: "1"}',
    empty=True,
)
EXTEND = Key(
    name="extend",
    kind=PATH,
    doc="A file of Dockerfile instructions that run after everything else, for what nothing else covers. They have no "
    "network, and no FROM, COPY or ADD of files (a heredoc works).",
    default="nothing",
    example="extend.Dockerfile",
    empty=True,
)

BUDGET = Record(
    what="budget",
    keys=(
        Key(name="layer", kind=BYTES, doc="The most that one layer may have.", default="4 GB", example='"4 GB"'),
        Key(name="image", kind=BYTES, doc="The most that all layers may have.", default="12 GB", example='"12 GB"'),
    ),
    example='budget: {layer: "4 GB", image: "12 GB"}',
    elsewhere={"layers": "write layer:, the most that one layer may have.", "total": "write image:."},
)

SITE = Record(
    what="a site",
    keys=(
        Key(
            name="driver",
            kind=DRIVER,
            doc="The NVIDIA driver there, as nvidia-smi prints it. Without it, driver rules are not "
            "checked and the least driver is shown.",
            example='"580.65.06"',
        ),
        Key(
            name="registry",
            kind=REGISTRY,
            doc="Where images for this site are pushed.",
            example="registry.example.com/ml",
        ),
        Key(
            name="runs",
            kind=Choice(
                values=("compose", "slurm", "kubernetes"),
                instead=(("docker", "write compose"), ("k8s", "write kubernetes")),
            ),
            doc="What starts jobs there.",
            default="compose",
            example="slurm",
        ),
        Key(
            name="consumer",
            kind=Word(
                what="a program that reads images, and its version",
                pattern=r"[a-z][a-z0-9-]* [0-9][A-Za-z0-9.+~-]*",
                example="enroot 4.1.2",
                longest=40,
                names="consumer",
            ),
            doc="What reads images there, with its version; `compression: zstd` depends on it.",
            default="docker for compose, enroot and apptainer for slurm, containerd for kubernetes, of any version",
            example="enroot 4.1.2",
        ),
        Key(
            name="fabric",
            kind=Choice(values=("none", "ib", "roce"), instead=(("infiniband", "write ib"),)),
            doc="The network between nodes.",
            default="none",
            example="ib",
        ),
    ),
)

HARDWARE = Record(
    what="a hardware entry",
    keys=(
        Key(
            name="gpu",
            kind=OneOf(scalar=GPU, items=Items(of=GPU, least=1, most=20)),
            doc="The GPU, by any name that the catalogue or "
            "nvidia-smi has for it; several for one image that serves all of them. Without it the entry is a CPU.",
            default="a CPU image",
            example="rtx-4090",
        ),
        Key(name="count", kind=Whole(least=1, most=1024), doc="GPUs in one machine.", default="1", example="2"),
        Key(
            name="memory_gb",
            kind=Whole(least=1, most=1024),
            doc="The memory of one GPU, where the model was sold with several sizes.",
            default="the model's",
            example="80",
        ),
        Key(
            name="mig",
            kind=Word(what="a MIG profile", pattern=r"[1-7]g\.[0-9]{1,3}gb(\+me)?", example="3g.20gb", longest=12),
            doc="The MIG profile that jobs get.",
            default="whole GPUs",
            example="3g.20gb",
        ),
        Key(name="arch", kind=ARCH, doc="The machine's CPU architecture.", default="x86_64", example="aarch64"),
        Key(name="site", kind=SITE_NAME, doc="The site where it stands.", default="none", example="lab"),
        Key(
            name="driver",
            kind=DRIVER,
            doc="The driver, where it is not the site's.",
            default="the site's",
            example='"580.65.06"',
        ),
        Key(
            name="shm",
            kind=SIZE,
            doc="Shared memory of a container, for data loaders.",
            default="sized to the machine",
            example="16g",
        ),
        *SOFTWARE,
        Key(
            name="source",
            kind=SOURCE,
            doc="Over the file's `source`, key by key.",
            default="the file's",
            example="{cpu: x86-64-v4}",
            empty=True,
        ),
        Key(
            name="packages",
            kind=Record(what="packages", keys=(*PACKAGE_KEYS, PACKAGE_SET), elsewhere={"build": _NOT_BUILT}),
            doc="Over the file's `packages`, key by key. The image is then this entry's own.",
            default="the file's",
            example="{apt: [git, ffmpeg], name: video}",
            empty=True,
        ),
        ENTRY_ENV,
        Key(
            name="extend",
            kind=OneOf(scalar=PATH, null=True),
            doc="Instead of the file's `extend`; empty for none.",
            default="the file's",
            example="extend-a100.Dockerfile",
        ),
        Key(
            name="budget",
            kind=BUDGET,
            doc="Over the file's `budget`, key by key. Of entries that share an image the least holds.",
            default="the file's",
            example='{image: "16 GB"}',
            empty=True,
        ),
    ),
    elsewhere={
        "memory": "write memory_gb:.",
        "gpus": "write gpu: (one name or a list) and count:.",
        "os": "write base:.",
    },
)


def _choice(*, entry: bool) -> Record:
    where = Key(
        name="hardware", kind=ENTRY_NAME, doc="The hardware entry; without it, all.", example="v100", required=entry
    )
    return Record(what="an include" if entry else "an exclude", keys=(where, *(k for k in SOFTWARE if k.name in AXES)))


def _axis(key: Key) -> Key:
    kind: Kind = Items(of=key.kind, least=1, most=50)
    return Key(
        name=key.name, kind=kind, doc=f"Values of `{key.name}`; the first is the default.", example=f"[{key.example}]"
    )


MATRIX = Record(
    what="matrix",
    keys=(
        *(_axis(k) for k in SOFTWARE if k.name in AXES),
        Key(
            name="exclude",
            kind=Items(of=_choice(entry=False)),
            doc="Combinations that are left out; each item leaves out every cell that has all its values.",
            default="none",
            example="[{hardware: v100, build: source}]",
            empty=True,
        ),
        Key(
            name="include",
            kind=Items(of=_choice(entry=True)),
            doc="Single cells more; a key that is not given has the entry's default.",
            default="none",
            example="[{hardware: h100, build: source}]",
            empty=True,
        ),
    ),
)

ALLOW = Record(
    what="an allow",
    keys=(
        Key(
            name="rule",
            kind=Word(what="the id of a rule", pattern=SLUG, example="cudnn-gpu", longest=60, names="rule"),
            doc="The rule that is overruled, as `explain` names it.",
            example="cudnn-gpu",
            required=True,
        ),
        Key(
            name="image",
            kind=Word(
                what="the id of an image",
                pattern=r"[a-z0-9][a-z0-9.-]*",
                example="torch2.14.1-cu130-py311-debian12-amd64",
                longest=128,
            ),
            doc="For this image only.",
            example="torch2.14.1-cu130-py311-debian12-amd64",
        ),
        Key(name="hardware", kind=ENTRY_NAME, doc="For this hardware entry only.", example="v100"),
        Key(
            name="reason",
            kind=Printable(what="a reason", longest=300),
            doc="Why; shown wherever it matters.",
            example="tested on our cards by hand",
            required=True,
        ),
    ),
)

FILE = Record(
    what="env.yaml",
    keys=(
        Key(
            name="schema",
            kind=Whole(least=1, most=1),
            doc="The version of this file's form.",
            example="1",
            required=True,
        ),
        Key(
            name="project",
            kind=Word(
                what="a project name of small letters, digits, hyphens and underscores",
                pattern=r"[a-z0-9]+([_-][a-z0-9]+)*",
                example="acme-train",
                longest=40,
            ),
            doc="Names images and containers.",
            example="acme-train",
            required=True,
        ),
        Key(
            name="sites",
            kind=Table(key=SITE_NAME, of=SITE),
            doc="Where things run: driver, registry and fabric belong to places.",
            default="none",
            example='{desk: {driver: "580.65.06"}}',
            empty=True,
        ),
        Key(
            name="hardware",
            kind=Table(key=NAME, of=HARDWARE, least=1, most=200),
            doc="What is owned. The names are what --gpu takes.",
            example="{rtx4090: {gpu: rtx-4090, count: 2, site: desk}}",
            required=True,
        ),
        Key(
            name="software",
            kind=Record(what="software", keys=SOFTWARE),
            doc="What every image has; an entry may override any of it.",
            default="see its keys",
            example='{torch: "2.14.1"}',
            empty=True,
        ),
        Key(
            name="matrix",
            kind=MATRIX,
            doc="Axes over the entries: each entry has a cell for every combination. A key that an entry sets itself "
            "is not varied for it.",
            default="one cell for each entry",
            example="{build: [wheel, source]}",
            empty=True,
        ),
        Key(
            name="source",
            kind=SOURCE,
            doc="How torch is built where `build` is source.",
            default="see its keys",
            example="{cpu: x86-64-v3}",
            empty=True,
        ),
        Key(
            name="packages",
            kind=Record(what="packages", keys=PACKAGE_KEYS, elsewhere={"build": _NOT_BUILT}),
            doc="What every image has beside torch.",
            default="nothing",
            example="{apt: [git], pip: requirements.txt}",
            empty=True,
        ),
        ENV,
        EXTEND,
        Key(
            name="budget",
            kind=BUDGET,
            doc="How large an image may be, in bytes of its files as they are unpacked. `verify` and `build` fail "
            "above it; the image itself does not depend on it.",
            default="see its keys",
            example='{layer: "4 GB", image: "12 GB"}',
            empty=True,
        ),
        Key(
            name="allow",
            kind=Items(of=ALLOW),
            doc="Rules overruled on purpose, each for one image or one hardware entry.",
            default="none",
            example="[{rule: cudnn-gpu, hardware: v100, reason: tested by hand}]",
            empty=True,
        ),
    ),
    elsewhere={
        "gpu": "GPUs are entries of hardware:.",
        "torch": "torch is a key of software:.",
        "python": "python is a key of software:.",
        "cuda": "cuda is a key of software:.",
        "base": "base is a key of software:.",
        "apt": "apt is a key of packages:.",
        "pip": "pip is a key of packages:.",
        "version": "write schema: 1.",
    },
)
