"""A kernel of each type on every device, against float64: matrix products and a convolution."""

from . import each_device, far

SIZE = 256


def facts(device):
    """The error of each type on each device, or what it answered."""
    import torch

    return {"devices": {place: _device(torch, place) for place in each_device(device)}}


def _device(torch, place):
    torch.manual_seed(23)
    a, b = torch.randn(SIZE, SIZE, dtype=torch.float64), torch.randn(SIZE, SIZE, dtype=torch.float64)
    seen = {}
    for name in ("float32", "tf32", "bfloat16", "float16", "float8"):
        try:
            seen[name] = _product(torch, name, a, b, place)
        except Exception as error:  # a type that this device does not have says so; a missing kernel too
            seen[name] = type(error).__name__ + ": " + str(error).strip()[:400]
    try:
        seen["convolution"] = _convolution(torch, place)
    except Exception as error:
        seen["convolution"] = type(error).__name__ + ": " + str(error).strip()[:400]
    return seen


def _product(torch, name, a, b, place):
    if name == "float8":
        return _float8(torch, a, b, place)
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    a, b = a.to(place, dtype), b.to(place, dtype)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        return far(a @ b, a.double().cpu() @ b.double().cpu())
    finally:
        torch.set_float32_matmul_precision(before)


def _float8(torch, a, b, place):
    if not hasattr(torch, "_scaled_mm"):
        return "absent"  # a torch before 2.1
    a8, b8 = a.to(place, torch.float8_e4m3fn), b.to(place, torch.float8_e4m3fn).t().contiguous().t()
    one = torch.ones((), device=place)
    return far(scaled(torch, a8, b8, one), a8.float().double().cpu() @ b8.float().double().cpu())


def scaled(torch, a, b, scale):
    """A product in fp8: torch has no public name for it, and releases before 2.5 answer with a pair."""
    seen = torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True)
    return seen[0] if isinstance(seen, tuple) else seen


def _convolution(torch, place):
    x, w = torch.randn(4, 16, 32, 32, dtype=torch.float64), torch.randn(24, 16, 3, 3, dtype=torch.float64)
    reference = torch.nn.functional.conv2d(x.float().double(), w.float().double(), padding=1)
    return far(torch.nn.functional.conv2d(x.float().to(place), w.float().to(place), padding=1), reference)
