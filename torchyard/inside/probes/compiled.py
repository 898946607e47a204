"""Whether torch.compile makes code that computes what the eager code does, forward and backward."""

import glob
import os
import shutil
import sys
import time

from . import far, mapped

COMPILERS = ("g++", "c++", "clang++", "gcc", "cc", "clang")


def facts(device):
    """Compilers, how far compiled results are from eager ones, how many graphs there are, and what was loaded."""
    found = {name: shutil.which(name) for name in COMPILERS}
    seen = {
        "compilers": {name: path for name, path in found.items() if path},
        "CXX": os.environ.get("CXX", ""),
        "CC": os.environ.get("CC", ""),
        "headers": _headers(),
    }
    try:
        seen.update(_compile(device))
    except Exception as error:  # the compilers that are there are told beside it
        seen["error"] = type(error).__name__ + ": " + _plain(str(error))
    return seen


def _compile(device):
    import torch

    def body(x, w):
        return torch.nn.functional.gelu(x @ w).sin().sum(1)

    torch.manual_seed(5)
    x, w = torch.randn(32, 48, device=device, requires_grad=True), torch.randn(48, 24, device=device)
    eager = body(x, w)
    (eager_gradient,) = torch.autograd.grad(eager.sum(), x)
    began = time.monotonic()
    compiled = torch.compile(body)(x, w)
    (gradient,) = torch.autograd.grad(compiled.sum(), x)
    counters = torch._dynamo.utils.counters
    return {
        "forward": far(compiled, eager),
        "backward": far(gradient, eager_gradient),
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "seconds": round(time.monotonic() - began, 2),
        "mapped": mapped(),
        "triton": _triton(device),
    }


def _triton(device):
    """Triton's version where it was loaded, and how many kernels for this device lie in its caches."""
    if not device.startswith("cuda"):
        return {}
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        folders = [cache_dir()]
    except ImportError:
        folders = []
    home = os.path.join(os.path.expanduser("~"), ".triton")
    folders += [os.environ.get("TRITON_CACHE_DIR") or home]
    found = {path for folder in folders for path in glob.glob(os.path.join(folder, "**", "*.cubin"), recursive=True)}
    return {"version": getattr(sys.modules.get("triton"), "__version__", ""), "kernels": len(found)}


def _headers():
    """Whether the C headers of Python are there: launchers of Triton's kernels are compiled against them."""
    import sysconfig

    return os.path.isfile(os.path.join(sysconfig.get_paths()["include"], "Python.h"))


def _plain(text):
    """The lines of an error that say what went wrong, without the advice that torch adds to each."""
    lines = [line for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("Set TORCH", "You can suppress", "    import torch"))]
    return "\n".join(kept)[:2000]
