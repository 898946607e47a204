"""The hand-written Dockerfiles, and what is handed to them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from torchyard.wheelpin import WheelPin

FOLDER = Path(__file__).resolve().parents[1] / "baselines"
NAIVE, TWO_STAGE = "naive", "two-stage"
SHA256 = {
    NAIVE: "480f2dc2d29bdd75523b2a9690bf9c160afb64b7f77f6c2e243b3278f752ce40",
    TWO_STAGE: "86828383a55e3edfd585af0d83732b7ce2bbbd78dafd1c45e7e13cd1d662dd47",
}
# The default of each file's APT, with what torchyard's image has beside it.
_COMMON = "python3-dev gcc g++ libc6-dev libgomp1 libibverbs1 ibverbs-providers librdmacm1 libnuma1 ca-certificates"
APT = {NAIVE: f"python3 python3-pip {_COMMON}", TWO_STAGE: f"python3 {_COMMON}"}
INSTALLED = ("python3-pip", "python3-venv")  # what the two files install beside what torchyard's image has


def dockerfile(name: str, folder: Path = FOLDER) -> Path:
    """The file, where it is unchanged."""
    path = folder / f"{name}.Dockerfile"
    seen = sha256(path.read_bytes()).hexdigest()
    if seen != SHA256[name]:
        raise SystemExit(f"{path} is not the baseline: sha256 {seen}, expected {SHA256[name]}")
    return path


def requirements(wheels: Sequence[WheelPin], changed: Sequence[str] = ()) -> str:
    """The pins of these wheels as a person writes them, with some changed or added."""
    pins = {w.name: f"{w.name}=={w.version}" for w in wheels}
    pins.update({line.partition("==")[0]: line for line in changed})
    return "".join(f"{line}\n" for _, line in sorted(pins.items()))
