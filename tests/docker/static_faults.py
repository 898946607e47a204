"""Images with one real fault each, made from a good one, and what verify has to say of them."""

from __future__ import annotations

from dataclasses import dataclass

SITE = "/opt/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/x86_64-linux-gnu"
PIP = "RUN --mount=type=bind,target=/given PIP_CONFIG_FILE=/dev/null pip install -q --no-index --no-deps --no-compile"
# Wheels that faults install; the tests fetch them from the index that the user's pip is configured with.
WHEELS = ("cowsay", "intel-openmp", "numpy==1.26.4", "nvidia-nvtx-cu12")
# And files that the locks of these entries pin, by the beginning of their names: torch for CPUs, and nvcc's parts.
TOOLKIT = ("nvidia_cuda_cccl-", "nvidia_cuda_crt-", "nvidia_cuda_nvcc-", "nvidia_cuda_runtime-", "nvidia_nvvm-")
LOCKED = {"cpu": ("torch-",), "a100": TOOLKIT}
# Compiles a kernel for one card only, and installs it as people install extensions of torch.
EXTENSION = f"""{PIP} --target /tmp/cuda {" ".join(f"/given/{name}*.whl" for name in TOOLKIT)} \\
 && mkdir -p /tmp/extension/scale && cd /tmp/extension && touch scale/__init__.py \\
 && echo 'extern "C" __global__ void scale(float *x) {{ x[threadIdx.x] *= 2; }}' >scale.cu \\
 && PATH=/tmp/cuda/nvidia/cu13/bin:$PATH \\
 && nvcc -gencode arch=compute_90,code=sm_90 -L/tmp/cuda/nvidia/cu13/lib -shared -Xcompiler -fPIC \\
    scale.cu -o scale/_C.so \\
 && echo 'import setuptools; setuptools.setup(name="scale", version="1.0", packages=["scale"],' >setup.py \\
 && echo ' package_data={{"scale": ["*.so"]}})' >>setup.py \\
 && PIP_CONFIG_FILE=/dev/null pip install -q --no-index --no-deps --no-compile --no-build-isolation . \\
 && cd / && rm -r /tmp/cuda /tmp/extension"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """steps: instructions on top of the good image, as root; cause: the rule that names it; words: what it says.

    follow: rules that may fail as its consequences. gpu: the entry whose image it starts from.
    """

    steps: str
    cause: str
    words: tuple[str, ...]
    follow: tuple[str, ...] = ()
    gpu: str = "cpu"


FAULTS = {
    "missing-library": Fault(
        steps=f"RUN rm {SITE}/torch/lib/libc10.so",
        cause="wheels.files",
        words=("torch/lib/libc10.so",),
        follow=("libraries.needed", "times.files"),
    ),
    "missing-plugin-of-the-distribution": Fault(
        steps=f"RUN rm {LIB}/libnuma.so.1*",
        cause="tools.rdma",
        words=("libnuma.so.1",),
        follow=("os.files", "libraries.needed", "times.files"),
    ),
    "no-compiler": Fault(
        steps="RUN dpkg --purge --force-depends gcc g++ gcc-12 g++-12 >/dev/null 2>&1",
        cause="tools.compiler",
        words=("cc (/usr/bin/cc)", "c++"),
        follow=("os.locked", "times.files"),
    ),
    "rdma-removed": Fault(
        steps="RUN dpkg --purge --force-depends ibverbs-providers libibverbs1 librdmacm1 >/dev/null 2>&1",
        cause="tools.rdma",
        words=("libibverbs.so.1", "provider mlx5"),
        follow=("os.locked", "libraries.needed", "times.files"),
    ),
    "openmp-twice": Fault(
        steps=f"{PIP} /given/intel_openmp-*.whl",
        cause="libraries.openmp",
        words=("libiomp5.so", "intel-openmp"),
        follow=("wheels.locked", "libraries.needed", "times.files", "times.bytecode"),
    ),
    "incompatible-numpy": Fault(
        steps=f"{PIP} /given/numpy-1.26.4-*.whl",
        cause="wheels.locked",
        words=("numpy 1.26.4",),
        follow=("times.files", "times.bytecode"),
    ),
    "an-extra-distribution": Fault(
        steps=f"{PIP} /given/cowsay-*.whl",
        cause="wheels.locked",
        words=("cowsay", "locked none"),
        follow=("times.files", "times.bytecode"),
    ),
    "shadowing-user-site": Fault(
        steps="USER 1000\n"
        "RUN --mount=type=bind,target=/given PIP_CONSTRAINT= /usr/bin/python3 -c"
        " \"import zipfile, glob; zipfile.ZipFile(glob.glob('/given/numpy-*.whl')[0])"
        ".extractall('/home/user/.local/lib/python3.11/site-packages')\"",
        cause="python.shadows",
        words=("/home/user/.local/lib/python3.11/site-packages", "numpy"),
        follow=("times.files", "times.bytecode", "libraries.needed"),
    ),
    "a-module-of-no-distribution": Fault(
        steps=f"RUN echo 'import sys' >{SITE}/mine.pth && echo >{SITE}/mine.py",
        cause="python.shadows",
        words=("mine", "of no distribution"),
        follow=("times.files",),
    ),
    "a-secret-that-a-later-layer-removes": Fault(
        steps="RUN mkdir /root/.ssh && openssl genrsa -traditional -out /root/.ssh/id_rsa 2048 2>/dev/null\n"
        "RUN rm /root/.ssh/id_rsa",
        cause="traces.secrets",
        words=("a private key in /root/.ssh/id_rsa", "a later layer removes"),
        follow=("times.files",),
    ),
    "a-token-in-the-environment": Fault(
        steps="ENV HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        cause="traces.secrets",
        words=("HF_TOKEN",),
    ),
    "a-netrc": Fault(
        steps="RUN echo 'machine files.example.org login me password hunter2' >/home/user/.netrc",
        cause="traces.secrets",
        words=("/home/user/.netrc",),
        follow=("times.files",),
    ),
    "clock-stamped-bytecode": Fault(
        steps=f"RUN PYTHONDONTWRITEBYTECODE= python -m compileall -q -f --invalidation-mode timestamp {SITE}/filelock",
        cause="times.bytecode",
        words=("filelock",),
        follow=("times.files", "wheels.files"),
    ),
    "world-writable": Fault(
        steps=f"RUN chmod 0777 {SITE}/sympy",
        cause="rights.writable",
        words=(f"{SITE}/sympy (0777)",),
        follow=("times.files",),
    ),
    "setuid": Fault(
        steps="RUN chmod u+s /usr/bin/env",
        cause="rights.setuid",
        words=("/usr/bin/env (4755)",),
        follow=("times.files",),
    ),
    "a-proxy": Fault(
        steps="ENV https_proxy=http://proxy.example.org:3128",
        cause="traces.proxies",
        words=("https_proxy",),
    ),
    "a-certificate-authority": Fault(
        steps="RUN cp $(ls /usr/share/ca-certificates/mozilla/*.crt | head -1) /usr/local/share/ca-certificates/my.crt",
        cause="traces.certificates",
        words=("/usr/local/share/ca-certificates/my.crt",),
        follow=("times.files",),
    ),
    "a-mirror": Fault(
        steps="RUN printf '[global]\\nindex-url = https://mirror.example.org/simple\\n' >/etc/pip.conf",
        cause="traces.addresses",
        words=("mirror.example.org", "/etc/pip.conf"),
        follow=("times.files",),
    ),
    "stubs-on-the-path": Fault(
        steps="RUN mkdir -p /usr/local/cuda/lib64/stubs\nENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
        cause="loader.stubs",
        words=("/usr/local/cuda/lib64/stubs",),
        follow=("loader.toolkit", "times.files"),
    ),
    "another-torch-in-a-cuda-image": Fault(
        gpu="a100",
        steps=f"{PIP} --force-reinstall /given/torch-*.whl",
        cause="torch.build",
        words=("a CPU build (2.13.0+cpu)",),
        follow=("torch.release", "wheels.locked", "code.torch", "libraries.needed", "times.files", "times.bytecode"),
    ),
    "no-code-for-the-card": Fault(
        gpu="a100",
        steps=EXTENSION,
        cause="code.extensions",
        words=("_C.so has 9.0 and no PTX", "a100-sxm4-40gb (8.0)", "rtx-4090 (8.9)"),
        follow=("wheels.locked", "times.files", "times.bytecode"),
    ),
    "a-cuda-12-extension": Fault(
        gpu="a100",
        steps=f"{PIP} /given/nvidia_nvtx_cu12-*.whl",
        cause="libraries.cuda-major",
        words=("nvidia-nvtx-cu12",),
        follow=("wheels.locked", "wheels.files", "times.files", "times.bytecode"),
    ),
    "a-second-cudnn": Fault(
        gpu="a100",
        steps=f"RUN cp {SITE}/nvidia/cudnn/lib/libcudnn.so.9 /usr/local/lib/ && ldconfig",
        cause="libraries.copies",
        words=("cuDNN", "/usr/local/lib/libcudnn.so.9"),
        follow=("times.files",),
    ),
}
