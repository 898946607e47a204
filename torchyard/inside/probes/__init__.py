"""The probes: each is a module with `facts(device)`, sees one thing, and judges nothing."""

import os


def far(seen, reference):
    """The largest difference of two tensors against the largest value of the reference, as a number; NaN stays."""
    seen, reference = seen.detach().double().cpu(), reference.detach().double().cpu()
    worst = float((seen - reference).abs().max()) / max(float(reference.abs().max()), 1e-300)
    return worst if worst == worst else "nan"


def each_device(device):
    """The devices of this kind, as torch names them."""
    if device != "cuda":
        return [device]
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def wait(device):
    """Wait for what was asked of a device."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def mapped(text=None, words=("gomp", "iomp", "libomp", "blas", "lapack", "mkl", "nvpl", "armpl", "blis")):
    """The shared objects with these words in their names that this process has mapped."""
    if text is None:
        with open("/proc/self/maps") as file:
            text = file.read()
    fields = [line.split(None, 5) for line in text.splitlines()]
    paths = {parts[5].removesuffix(" (deleted)") for parts in fields if len(parts) == 6 and ".so" in parts[5]}
    return sorted(path for path in paths if any(word in os.path.basename(path).lower() for word in words))
