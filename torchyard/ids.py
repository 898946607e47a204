"""The one name of an image, made of what is in it; two images that differ in a byte's cause have two names."""

from __future__ import annotations

import hashlib
import json

from torchyard.plan import Base, BaseKind, BuildKind, Compression, PackageSet, SourceBuild

LONGEST = 119  # of the 128 characters of a tag, so that an ending such as -dev still fits
_DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}


def image_id(
    *,
    torch: str,
    cuda_tag: str,
    python: str,
    python_from: str,
    base: Base,
    arch: str,
    pairs: tuple[tuple[str, str], ...] = (),
    packages_name: str = "",
    build: BuildKind = BuildKind.WHEEL,
    blas: str = "",
    cudnn: str | None = None,
    source: SourceBuild | None = None,
    allowed: tuple[tuple[str, str], ...] = (),
    compression: Compression | None = None,
) -> str:
    """`torch2.14.1-cu130-py311-debian12-amd64`, longer where the image is less usual.

    A wheel settles its BLAS, cuDNN and device code, so blas and cudnn count for a source build only. packages_name
    is empty for the default set. allowed are the rules that were overruled, with the reasons: an image that breaks one
    says so in its name. What is too long to read is a hash of eight digits. Other layers than gzip stand before the
    architecture, where no name of a set of packages can look like them.
    """
    parts = [f"torch{torch}"]
    parts += [f"{name.removeprefix('torch')}{version}" for name, version in sorted(pairs, reverse=True)]
    parts.append(cuda_tag)
    if build is BuildKind.SOURCE:
        assert source is not None
        parts += _source_parts(source, blas, cudnn)
    parts.append("py" + python.replace(".", "", 1) + ("" if python_from == "distribution" else f"-{python_from}"))
    parts += _base_parts(base)
    parts += [] if compression in (None, Compression.GZIP) else [compression.value]
    parts.append(_DEBIAN_ARCH[arch])
    if packages_name:
        parts.append(packages_name)
    if allowed:
        parts.append("allowed" + short_hash(allowed))
    name = "-".join(parts)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{short_hash(name)}"


def _source_parts(source: SourceBuild, blas: str, cudnn: str | None) -> list[str]:
    """`src-openblas-x86-64-v3-sm80.86-1a2b3c4d`; the hash covers the parts before it too."""
    everything: list[object] = [
        source.ref, source.commit, source.flags, source.cpu, source.arch_list, source.gcc, blas, cudnn,
    ]  # fmt: skip
    if source.archive:
        everything.append(source.archive)
    parts = ["src", blas, source.cpu]
    if source.arch_list:
        parts.append("sm" + ".".join(each.replace(".", "").replace("+PTX", "ptx") for each in source.arch_list))
    return [*(part for part in parts if part), short_hash(everything)]


def _base_parts(base: Base) -> list[str]:
    """`debian12`, and for a registry image `image` with a hash of its reference."""
    name, _, version = base.os.rpartition("-")
    os = name + version if name and not name[-1].isdigit() else base.os
    return [os, "image" + short_hash(base.ref)] if base.kind is BaseKind.IMAGE else [os]


def set_name(packages: PackageSet) -> str:
    """A hash for a set of packages that has no name of its own."""
    return short_hash([packages.apt, packages.pip, packages.env, packages.extend])


def short_hash(value: object) -> str:
    """Eight hexadecimal digits of a plain value; the order of lists counts."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
