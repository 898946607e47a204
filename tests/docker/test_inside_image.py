"""What a user meets inside the images: torch as locked and held there, an overlay of one's own, and no trace of us."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone, Ended

pytestmark = pytest.mark.docker

COMPILES = """
import os
import torch

def body(x, y):
    return torch.sin(x) @ y + x.sum()

x = torch.arange(64, dtype=torch.float32).reshape(8, 8) / 64
y = x.t().contiguous()
assert torch.allclose(torch.compile(body)(x, y), body(x, y))
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
print(os.getuid(), os.environ["HOME"], torch.__version__)
"""
PROJECT = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "mine"\nversion = "1"\ndependencies = ["torch"]\n',
    "src/mine/__init__.py": "import torch\nWHERE = torch.__file__\nVERSION = torch.__version__\n",
}
IN_OVERLAY = """
cp -r /project /tmp/project && cd /tmp/project && overlay /tmp/mine >/dev/null && . /tmp/mine/bin/activate
{install} && cd / && exec python -W ignore -c 'import mine; print(mine.__file__, mine.WHERE, mine.VERSION)'
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
INSTALLS = {
    "pip": "pip install --no-index --find-links /wheels -e .",
    "uv": "uv pip install --no-index --find-links /wheels -e .",
    "pip-without-isolation": "pip install --no-build-isolation -e .",
    "uv-without-isolation": "uv pip install --offline --no-build-isolation -e .",
}
ASKS = ("torch.__version__", "torch.version.cuda", "torch.backends.cudnn.version()", "torch._C._cuda_getArchFlags()")
LEFT = """
find /home /root /run /tmp /usr/local/share/ca-certificates /var/log /var/tmp /workspace -type f \\
    ! -path /root/.bashrc ! -path /root/.profile
find / -xdev \\( -name '*.pyc' -prune \\) -o \\( -name uv_cache.json -o -name direct_url.json -o -name '*.log' \\
    -o -name '.netrc' -o -path '/var/lib/apt/lists/*' -o -path '/var/cache/apt/*.bin' \\) -type f -print
find / -xdev -perm -0002 ! -type l ! -perm -1000 ! -path '/proc/*' ! -path '/dev/*'
"""


def inside(yard: Clone, gpu: str, argv: Sequence[str], *options: str) -> Ended:
    """Run a command in an image, without a network."""
    return yard.docker("run", "--rm", "--network", "none", *options, yard.tag(gpu), *argv)


def config(yard: Clone, gpu: str) -> dict[str, Any]:
    """The image's configuration."""
    found: dict[str, Any] = json.loads(
        yard.docker("image", "inspect", "--format", "{{json .Config}}", yard.tag(gpu)).good().out
    )
    return found


@pytest.fixture(scope="module")
def wheels(yard: Clone, cpu: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another torch, something that wants it, and setuptools for builds of projects."""
    folder = tmp_path_factory.mktemp("wheels")
    folder.chmod(0o755)
    _wheel(folder, "torch", "0.0.1")
    _wheel(folder, "needs_other_torch", "1.0", "torch==0.0.1")
    (setuptools,) = (yard.root / ".torchyard" / "context" / yard.image("cpu")).glob("wheels*/setuptools-*.whl")
    (folder / setuptools.name).write_bytes(setuptools.read_bytes())
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project that needs torch."""
    folder = tmp_path_factory.mktemp("project")
    folder.chmod(0o755)
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")


@pytest.mark.parametrize("wanted", ["needs-other-torch", "torch==0.0.1"])
@pytest.mark.parametrize("installer", ["pip", "uv pip"])
def test_another_torch_is_refused_with_the_held_version_named(
    yard: Clone, cpu: dict[str, Any], wheels: Path, installer: str, wanted: str
) -> None:
    install = [*installer.split(), "install", "--no-index", "--find-links", "/wheels", wanted]
    refused = inside(yard, "cpu", install, "--user", "0", "--volume", f"{wheels}:/wheels:ro")
    assert refused.code == 1
    said = refused.out + refused.err
    assert "torch==0.0.1" in said
    assert "torch==2.13.0+cpu" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("way", INSTALLS)
def test_an_editable_project_goes_into_an_overlay_and_gets_the_locked_torch(
    yard: Clone, cpu: dict[str, Any], wheels: Path, project: Path, way: str
) -> None:
    script = IN_OVERLAY.format(install=INSTALLS[way])
    mounts = ("--volume", f"{wheels}:/wheels:ro", "--volume", f"{project}:/project:ro")
    done = inside(yard, "cpu", ["bash", "-c", script], "--user", "12345:12345", *mounts).good()
    mine, torch, version = done.out.splitlines()[-1].split()
    assert mine == "/tmp/project/src/mine/__init__.py"
    assert torch == "/opt/venv/lib/python3.11/site-packages/torch/__init__.py"
    assert version == "2.13.0+cpu"


def test_a_read_only_root_no_home_and_a_nameless_uid_still_compile_a_function(yard: Clone, cpu: dict[str, Any]) -> None:
    """B109."""
    options = ("--read-only", "--tmpfs", "/tmp:exec", "--user", "12345:12345", "--env", "HOME=/nonexistent")
    done = inside(yard, "cpu", ["python", "-W", "ignore", "-c", COMPILES], *options).good()
    assert done.out.split() == ["12345", "/nonexistent", "2.13.0+cpu"]


def test_the_locked_environment_is_roots_and_nobody_else_can_write_it(yard: Clone, cpu: dict[str, Any]) -> None:
    others = ["(", "-perm", "/0022", "-o", "!", "-user", "root", ")", "!", "-type", "l"]
    found = inside(yard, "cpu", ["find", "/opt", "/usr/bin", "/usr/lib", "/etc", *others], "--user", "0").good()
    assert found.out == ""


@pytest.mark.parametrize("gpu", ["cpu", "a100"])
def test_nothing_of_the_build_is_left(yard: Clone, request: pytest.FixtureRequest, gpu: str) -> None:
    request.getfixturevalue(gpu)
    left = inside(yard, gpu, ["sh", "-c", LEFT], "--user", "0", "--workdir", "/").good()
    assert left.out.split() == []
    certificates = (
        "cat /etc/ssl/certs/ca-certificates.crt | grep -c BEGIN; find /usr/share/ca-certificates -type f | wc -l"
    )
    (bundle, packaged) = inside(yard, gpu, ["sh", "-c", certificates]).good().out.split()
    assert bundle == packaged  # those of the distribution's package, and none of this host


def test_no_path_and_no_address_of_this_host_is_in_the_image(yard: Clone, cpu: dict[str, Any]) -> None:
    places = [str(clones.ROOT), str(yard.root), str(yard.engine), str(yard.home), *pip_places()]
    words = [part for place in places for part in ("-e", place)]
    looking = ["grep", "-rlF", *words, "/bin", "/etc", "/home", "/lib", "/opt", "/root", "/usr", "/var"]
    found = inside(yard, "cpu", looking, "--user", "0")
    assert (found.code, found.out) == (1, ""), found.err
    told = yard.docker("history", "--no-trunc", "--format", "{{json .}}", yard.tag("cpu")).good().out
    assert [place for place in places if place in told + json.dumps(config(yard, "cpu"))] == []


def pip_places() -> list[str]:
    """The directories and private indexes that pip is configured with here."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    values = re.findall(r"(?:find-links|index-url)='([^']*)'", listed.lower())
    return [word for value in values for word in value.replace("\\n", " ").split() if word.startswith(("/", "file:"))]


@pytest.mark.parametrize("gpu", ["cpu", "a100"])
def test_behaviour_is_environment_only_and_names_no_gpu(yard: Clone, request: pytest.FixtureRequest, gpu: str) -> None:
    request.getfixturevalue(gpu)
    found = config(yard, gpu)
    assert not found["Entrypoint"]
    assert not [name for name in found["Env"] if re.search(r"proxy|_ca_|cert_file|ssl_cert", name, re.IGNORECASE)]
    told = json.dumps([found["Env"], found["Labels"], found["Cmd"]])
    assert not re.search(r"a100|h100|v100|[gr]tx|geforce|tesla|ampere|hopper", told, re.IGNORECASE)


def test_the_a100_image_has_the_locked_torch_cuda_and_cudnn_and_code_for_its_sharers(
    yard: Clone, a100: dict[str, Any]
) -> None:
    code = "import torch\n" + "\n".join(f"print({each})" for each in ASKS)
    torch, cuda, cudnn, arches = inside(yard, "a100", ["python", "-W", "ignore", "-c", code]).good().out.splitlines()
    assert (torch, cuda, cudnn) == ("2.14.1+cu130", "13.0", "92400")
    assert {"sm_80", "sm_86", "sm_90", "sm_120"} <= set(arches.split())
    assert {finding["state"] for finding in a100["findings"]} == {"pass"}


def test_rtx4090_selects_the_image_of_a100(yard: Clone) -> None:
    cells = json.loads(yard.yard("matrix", "--json").good().out)["cells"]
    images = {cell["hardware"]: cell["image"] for cell in cells}
    assert images["rtx4090"] == images["a100"] == "torch2.14.1-cu130-py311-debian12-amd64"
