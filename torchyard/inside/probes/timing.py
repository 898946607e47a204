"""How long matrix products take, by the device's own events and by the clock, and how many operations that makes."""

import time

from . import each_device, wait
from .kernels import scaled

ON_GPU = ("float32", "tf32", "bfloat16", "float16", "float8")
ON_CPU = ("float32", "bfloat16")


def facts(device):
    """Milliseconds by events and by the clock, and 10**12 operations a second of each type, on each device."""
    import torch

    return {"devices": {place: _device(torch, place) for place in each_device(device)}}


def _device(torch, place):
    names = (
        ("float32", "tf32", "bfloat16", "float16", "float8") if place.startswith("cuda") else ("float32", "bfloat16")
    )
    return {name: _type(torch, place, name) for name in names}


def _product(torch, name, size, place):
    """A product of this type, ready to be asked for again and again."""
    if name != "float8":
        a = torch.randn(size, size, device=place).to(torch.float32 if name == "tf32" else getattr(torch, name))
        return lambda: a @ a
    a = torch.randn(size, size, device=place).to(torch.float8_e4m3fn)
    b, one = a.t().contiguous().t(), torch.ones((), device=place)
    return lambda: scaled(torch, a, b, one)


def _type(torch, place, name):
    cuda = place.startswith("cuda")
    size, rounds = (8192, 20) if cuda else (512, 4)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        if cuda:
            torch.cuda.set_device(place)  # events are made on the device that is current
        product = _product(torch, name, size, place)
        for _ in range(3):
            product()
        wait(place)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
        began = time.perf_counter()
        if cuda:
            events[0].record(torch.cuda.current_stream(place))
        for _ in range(rounds):
            product()
        if cuda:
            events[1].record(torch.cuda.current_stream(place))
        wait(place)
        clock = (time.perf_counter() - began) * 1000
        by_events = events[0].elapsed_time(events[1]) if cuda else clock
    except Exception as error:
        return {"error": type(error).__name__ + ": " + str(error).strip()[:400]}
    finally:
        torch.set_float32_matmul_precision(before)
    return {"clock_ms": clock, "events_ms": by_events, "tflops": 2 * size**3 * rounds / by_events / 1e9}
