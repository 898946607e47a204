"""What the stages that compile torch are told: finished values for the templates, out of one lock. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard import source
from torchyard.lock import LockedImage
from torchyard.plan import Image

FILE = "source.tar"  # what the pinned source is called in its context
FOLDER = "/src"  # where it is compiled: the same in every builder, and mapped away
HOME = "/opt/cuda"  # the toolkit of the builder, laid out of NVIDIA's wheels
# How much memory one compiler job needs, in MB: attention kernels take several GB each (pytorch/pytorch#108174), the
# largest units of ATen about one and a half. Estimates that leave room; source.jobs overrules what follows from them.
MEMORY = {True: 4000, False: 1500}


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceView:
    """What the parts of a source build receive."""

    kind: str
    ref: str
    commit: str
    version: str
    packages: int
    wheels: int
    memory: int  # of one job, in MB
    cache: str  # the id of the compiler cache
    env: tuple[tuple[str, str], ...]  # sorted


def version(image: Image) -> str:
    """The version of the compiled wheel: the release with the build's name, as the release's own have it."""
    return f"{image.torch}+{image.cuda_tag}"


def view(lock: LockedImage) -> SourceView:
    """The values of the stages of a source build."""
    assert lock.source is not None
    image = lock.image
    return SourceView(
        kind=lock.source.kind.value,
        ref=lock.source.ref,
        commit=lock.source.commit or "its archive",
        version=version(image),
        packages=len(lock.group("build")),
        wheels=len(lock.build_wheels),
        memory=MEMORY[image.cuda is not None],
        cache=f"torchyard-ccache-{image.arch}",
        env=environment(image),
    )


def environment(image: Image) -> tuple[tuple[str, str], ...]:
    """Every variable of the build, sorted by name; none of them is in the image."""
    assert image.source is not None
    gcc = image.source.gcc.partition(".")[0]
    prefix = f"-ffile-prefix-map={FOLDER}=pytorch"
    flags = dict(image.source.flags)
    common = f"-march={image.source.cpu} {prefix}"
    build = source.Build(torch=image.torch, arch=image.arch, blas=image.blas, cuda=image.cuda)
    made = {
        **dict(source.settings(image.source.flags, build)),
        "CC": f"gcc-{gcc}",
        "CXX": f"g++-{gcc}",
        "CFLAGS": " ".join(filter(None, (common, flags.get("CFLAGS", "")))),
        "CXXFLAGS": " ".join(filter(None, (common, flags.get("CXXFLAGS", flags.get("CFLAGS", ""))))),
        "PYTORCH_BUILD_VERSION": version(image),
        "PYTORCH_BUILD_NUMBER": "1",
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_PREFIX_PATH": "/opt/venv",
        "USE_CCACHE": "1",
        "CCACHE_DIR": "/var/cache/ccache",
        "CCACHE_BASEDIR": FOLDER,
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "content",
        "PYTHONHASHSEED": "0",
    }
    if image.blas == "mkl":
        made["INTEL_MKL_DIR"] = "/opt/venv"
    if image.cuda is not None:
        made |= _cuda(image, gcc, prefix)
    return tuple(sorted(made.items()))


def _cuda(image: Image, gcc: str, prefix: str) -> dict[str, str]:
    assert image.source is not None
    return {
        "TORCH_CUDA_ARCH_LIST": ";".join(image.source.arch_list),
        "CMAKE_CUDA_ARCHITECTURES": ";".join(cmake_architectures(image.source.arch_list)),
        "CUDA_HOME": HOME,
        "CUDACXX": f"{HOME}/bin/nvcc",
        "CUDAHOSTCXX": f"g++-{gcc}",
        "CUDAFLAGS": f"-Xcompiler=-march={image.source.cpu},{prefix}",
        "CUDNN_INCLUDE_DIR": f"{HOME}/include",
        "CUDNN_LIBRARY": f"{HOME}/lib/libcudnn.so",
        "NCCL_INCLUDE_DIR": f"{HOME}/include",
        "NCCL_LIB_DIR": f"{HOME}/lib",
    }


def cmake_architectures(arch_list: tuple[str, ...]) -> tuple[str, ...]:
    """The same targets as CMake writes them: 8.0 is 80, 9.0a is 90a."""
    return tuple(dict.fromkeys(each.removesuffix("+PTX").replace(".", "") for each in arch_list))
