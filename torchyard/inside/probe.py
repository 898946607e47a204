"""Says what Python and torch of this environment are. Runs inside an image; needs nothing but what it asks about."""

import json
import platform
import sys


def torch_facts():
    """What torch says of itself, or why it cannot be loaded."""
    try:
        import torch
    except Exception as error:  # whatever stops the import is the fact
        return {"error": f"{type(error).__name__}: {error}"}
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "arch_flags": flags() if flags else None,
        "file": torch.__file__,
        "sum": float(torch.ones(8, 8).matmul(torch.ones(8, 8)).sum()),
    }


def distributions():
    """Every installed distribution with its version, normalised names."""
    import re
    from importlib.metadata import distributions as installed

    return {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in installed()}


if __name__ == "__main__":
    json.dump(
        {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "prefix": sys.prefix,
            "torch": torch_facts(),
            "distributions": distributions(),
        },
        sys.stdout,
    )
