"""Locks made for tests: one that is small and whole, and any that the types allow."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from torchyard.lock import LockedBase, LockedImage, Tools
from torchyard.ospin import OsPin
from torchyard.plan import Base, BaseKind, BuildKind, Image, PackageSet, SourceBuild
from torchyard.wheelpin import WheelPin

ID = "torch2.14.1-cu130-py311-debian12-amd64"


def wheel(name: str, version: str = "1.0", size: int = 1, **more: object) -> WheelPin:
    """A pinned wheel; its hash is made of its name's first letters."""
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    sha256 = name.encode().hex()[:8].ljust(64, "0")
    return replace(WheelPin(name=name, version=version, file=file, sha256=sha256, size=size, index="pypi"), **more)  # type: ignore[arg-type]


def package(name: str, group: str) -> OsPin:
    """A pinned package of the distribution."""
    return OsPin(
        name=name,
        version="1:2.0-1+b2",
        architecture="amd64",
        size=100,
        sha256=name.encode().hex()[:8].ljust(64, "1"),
        archive="release",
        path=f"pool/main/{name[0]}/{name}/{name}_2.0-1+b2_amd64.deb",
        group=group,
    )


def image(**changes: object) -> Image:
    """The image of a CUDA build; fields can be given."""
    made = Image(
        id=ID,
        torch="2.14.1",
        torch_requirement="2.14.1",
        build=BuildKind.WHEEL,
        cuda_tag="cu130",
        cuda="13.0",
        cudnn="9.24.0.43",
        sass=("7.5", "8.0"),
        ptx=("12.0",),
        python="3.11",
        python_from="distribution",
        base=Base(kind=BaseKind.ARCHIVE, os="debian-12"),
        arch="x86_64",
        index="pypi",
        blas="mkl",
        driver_require="cuda>=13.0",
        packages=PackageSet(pip=("numpy",)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def lock(**changes: object) -> LockedImage:
    """A lock with a few of everything; fields can be given."""
    made = LockedImage(
        image=image(),
        fingerprint="f" * 64,
        epoch=1783764997,
        base=LockedBase(kind=BaseKind.ARCHIVE, tar="a" * 64),
        os=(package("bash", "base"), package("gcc", "os"), package("gdb", "dev")),
        wheels=(
            wheel("jinja2", "3.1.6", requires=("markupsafe",)),
            wheel("markupsafe", "3.0.4"),
            wheel("nvidia-cublas", "13.1", size=500_000_000),
            wheel("nvidia-nvtx", "13.0"),
            wheel("torch", "2.14.1"),
            wheel("uv", "0.13.9"),
        ),
        dev_wheels=(wheel("nvidia-cuda-nvcc", "13.0"),),
        tools=Tools(base_format="1", layer_format="1", uv=wheel("uv", "0.13.9"), buildkit_min="0.12"),
        archives=(("release", 1783764997), ("security", 1783764990)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_lines = _texts.filter(str.isprintable)
_names = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,5})?", fullmatch=True)
_versions = st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9])?((a|rc)[0-9]|\+cu[0-9]{3})?", fullmatch=True)
_hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)
_sizes = st.integers(0, 2**50)
_variables = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_capabilities = st.sampled_from(["7.0", "8.0", "8.6", "9.0a", "12.0"])
_pairs = st.tuples(_names, _versions)

wheels = st.builds(
    WheelPin,
    name=_names,
    version=_versions,
    file=st.builds("{}-{}-py3-none-any.whl".format, _names, _versions),
    sha256=_hashes,
    size=_sizes,
    index=_names,
    requires=st.lists(_names, max_size=3).map(tuple),
)
packages = st.builds(
    OsPin,
    name=_names,
    version=st.from_regex(r"([0-9]:)?[0-9][0-9.~+-]{0,8}", fullmatch=True),
    architecture=st.sampled_from(["amd64", "arm64", "all"]),
    size=_sizes,
    sha256=_hashes,
    archive=st.sampled_from(["release", "updates", "security"]),
    path=st.builds("pool/main/{}/{}_{}.deb".format, _names, _names, _versions),
    group=st.sampled_from(["base", "os", "user", "dev"]),
)
sources = st.builds(
    SourceBuild,
    ref=_lines.filter(bool),
    commit=_texts,
    flags=st.lists(st.tuples(_texts, _texts), max_size=3).map(tuple),
    cpu=_texts,
    arch_list=st.lists(_capabilities, max_size=3).map(tuple),
    gcc=_texts,
)
images = st.builds(
    Image,
    id=st.from_regex(r"torch[0-9][a-z0-9.+-]{0,20}", fullmatch=True),
    torch=_versions,
    torch_requirement=_versions,
    build=st.just(BuildKind.WHEEL),
    cuda_tag=_names,
    cuda=st.none() | st.sampled_from(["11.8", "13.0"]),
    cudnn=st.none() | _versions,
    sass=st.lists(_capabilities, max_size=3).map(tuple),
    ptx=st.lists(_capabilities, max_size=3).map(tuple),
    python=st.sampled_from(["3.11", "3.12"]),
    python_from=_texts,
    base=st.builds(Base, kind=st.sampled_from(BaseKind), os=_names, ref=_lines),
    arch=st.sampled_from(["x86_64", "aarch64"]),
    index=_names,
    blas=_texts,
    driver_require=_lines,
    pairs=st.lists(_pairs, max_size=2).map(tuple),
    packages=st.builds(
        PackageSet,
        name=_texts,
        apt=st.lists(_texts, max_size=3).map(tuple),
        pip=st.lists(_texts, max_size=3).map(tuple),
        env=st.lists(st.tuples(_variables, _texts), max_size=4).map(tuple),
        extend=_texts,
    ),
    source=st.none() | sources,
)
locks = st.builds(
    LockedImage,
    image=images,
    fingerprint=_hashes | st.text("0123456789", min_size=64, max_size=64) | _hashes.map("0e{:.62}".format),
    epoch=st.integers(0, 2**40),
    base=st.builds(LockedBase, kind=st.just(BaseKind.ARCHIVE), tar=_hashes)
    | st.builds(LockedBase, kind=st.just(BaseKind.IMAGE), digest=_hashes.map("sha256:{}".format)),
    os=st.lists(packages, max_size=3).map(tuple),
    wheels=st.lists(wheels, max_size=3).map(tuple),
    dev_wheels=st.lists(wheels, max_size=2).map(tuple),
    tools=st.builds(Tools, base_format=_names, layer_format=_names, uv=wheels, buildkit_min=_versions),
    archives=st.dictionaries(st.sampled_from(["release", "updates", "security"]), st.integers(0, 2**40)).map(
        lambda d: tuple(sorted(d.items()))
    ),
)
