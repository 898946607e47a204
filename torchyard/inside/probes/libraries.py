"""Which BLAS and OpenMP are really loaded, and how many threads they use of the CPUs that this process may use."""

import os
import re

import cgroup

from . import mapped

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LD_PRELOAD", "KMP_AFFINITY")


def facts(device):
    """What is mapped after torch and numpy multiplied, what torch says of its build, and its threads."""
    import torch

    torch.ones(64, 64).matmul(torch.ones(64, 64)).sum().item()
    alone = mapped()
    try:
        import numpy

        numpy.ones((64, 64)).dot(numpy.ones((64, 64)))
    except Exception:  # the probe of arrays tells why
        pass
    shown = torch.__config__.show()
    return {
        "torch": alone,
        "mapped": mapped(),
        "config": config(shown),
        "threads": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        "affinity": len(os.sched_getaffinity(0)),
        "quota": cgroup.cpus(),
        "cgroup": cgroup.version(),
        "capability": _capability(torch),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def config(shown):
    """The words of torch.__config__.show() that name libraries."""
    words = dict(re.findall(r"\b(BLAS_INFO|LAPACK_INFO|USE_OPENMP|USE_MKLDNN|USE_GLOO|USE_NCCL)=([^,\s]+)", shown))
    for name, pattern in (("mkl", r"Math Kernel Library Version (\S+)"), ("onednn", r"MKL-DNN v(\S+)")):
        found = re.search(pattern, shown)
        if found:
            words[name] = found.group(1)
    return words


def _capability(torch):
    asked = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    return asked() if asked else ""
