"""The dev target: compilers and tools on top of the runtime image, which does not depend on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clones import Clone

pytestmark = pytest.mark.docker

PROGRAM = r"""
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_fp16.h>
__global__ void twice(__half *x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
int main() {
    cublasHandle_t handle;
    int version = 0;
    cublasCreate(&handle);
    cudaRuntimeGetVersion(&version);
    std::printf("%d\n", version);
}
"""
TOOLS = "cmake --version; ninja --version; git --version; gdb --version; py-spy --version; g++ --version"
COMPILE = """
set -e
cd /tmp
nvcc --version
nvcc -arch=sm_80 /program.cu -o program -lcublas
LD_LIBRARY_PATH=$CUDA_HOME/lib64 ./program
python -W ignore -c 'from torch.utils import cpp_extension; print(cpp_extension.CUDA_HOME)'
"""


def layers(yard: Clone, tag: str) -> list[str]:
    """The uncompressed layers of an image."""
    return yard.docker("image", "inspect", "--format", "{{range .RootFS.Layers}}{{.}} {{end}}", tag).good().out.split()


@pytest.mark.parametrize("gpu", ["cpu", "a100"])
def test_dev_is_the_runtime_image_with_tools_on_top(yard: Clone, request: pytest.FixtureRequest, gpu: str) -> None:
    receipt: dict[str, Any] = request.getfixturevalue(gpu)
    yard.yard("build", "--gpu", gpu, "--dev", "--level", "identity").good()
    assert yard.receipt(yard.image(gpu)) == receipt  # a dev build changes nothing of the runtime image
    dev = f"{yard.tag(gpu)}-dev"
    shared = len(set(receipt["layers"]) & set(layers(yard, dev)))
    assert shared >= len(receipt["layers"]) - 1  # all but the empty layer of its last WORKDIR, at most
    done = yard.docker("run", "--rm", "--network", "none", dev, "sh", "-ec", TOOLS).good()
    assert all(word in done.out for word in ("cmake version", "git version", "GNU gdb", "py-spy", "g++"))
    missing = yard.docker("run", "--rm", yard.tag(gpu), "sh", "-c", "which cmake ninja git gdb py-spy nvcc")
    assert missing.out == ""


def test_nvcc_of_torchs_cuda_compiles_and_links(yard: Clone, a100: dict[str, Any], tmp_path: Path) -> None:
    yard.yard("build", "--gpu", "a100", "--dev", "--level", "identity").good()
    (tmp_path / "program.cu").write_text(PROGRAM)
    mount = ("--volume", f"{tmp_path / 'program.cu'}:/program.cu:ro")
    dev = f"{yard.tag('a100')}-dev"
    done = yard.docker("run", "--rm", "--network", "none", *mount, dev, "sh", "-c", COMPILE).good()
    assert "release 13.0" in done.out
    version, home = done.out.splitlines()[-2:]
    assert version == "13000"
    assert home == "/opt/venv/lib/python3.11/site-packages/nvidia/cu13"
