"""Whether the allocator gives memory, takes it back, and says no in a way that a program can go on from."""

from . import each_device


def facts(device):
    """Bytes before, during and after an allocation on each device, and what asking for too much gives."""
    import torch

    return {"devices": {place: _device(torch, place) for place in each_device(device)}}


def _device(torch, place):
    size = 256 << 20
    if not place.startswith("cuda"):
        block = torch.empty(size, dtype=torch.uint8, device=place).fill_(3)
        return {
            "held": block.numel(),
            "sum": int(block[:: 1 << 20].sum()),
            "left": 0,
            "too_much": _too_much(torch, place),
        }
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info(place)
    before = torch.cuda.memory_allocated(place)
    size = max(min(size, free // 4) >> 20, 1) << 20
    block = torch.empty(size, dtype=torch.uint8, device=place).fill_(3)
    held, checked = torch.cuda.memory_allocated(place) - before, int(block[:: 1 << 20].sum())
    del block
    torch.cuda.empty_cache()
    left = torch.cuda.memory_allocated(place) - before
    seen = {"free": free, "total": total, "held": held, "sum": checked, "left": left}
    return dict(seen, too_much=_too_much(torch, place), config=torch.cuda.get_allocator_backend())


def _too_much(torch, place):
    """What asking for an exabyte gives, and whether the device still computes after it."""
    try:
        torch.empty(1 << 60, dtype=torch.uint8, device=place)
    except RuntimeError as error:  # OutOfMemoryError is one
        torch.ones(4, device=place).sum().item()
        return type(error).__name__
    return "given"
