"""Which devices reach each other's memory, whether what is copied between them arrives, and how fast."""

import time

from . import each_device, wait


def facts(device):
    """For every pair of devices: whether access is possible, whether a copy came whole, and GB/s of large ones."""
    import torch

    places = each_device(device)
    reach, whole, speed = [], [], []
    for one in places:
        row, copied, fast = [], [], []
        for other in places:
            direct = one != other and one.startswith("cuda")
            row.append(torch.cuda.can_device_access_peer(one, other) if direct else True)
            sent = torch.arange(1 << 16, device=one)
            copied.append(bool((sent.to(other).cpu() == torch.arange(1 << 16)).all()))
            fast.append(_speed(torch, one, other))
        reach.append(row)
        whole.append(copied)
        speed.append(fast)
    return {"devices": places, "reach": reach, "whole": whole, "speed": speed}


def _speed(torch, one, other):
    size, rounds = (1 << 28, 8) if one.startswith("cuda") else (1 << 20, 2)
    here = torch.ones(size, dtype=torch.uint8, device=one)
    there = torch.empty(size, dtype=torch.uint8, device=other)
    there.copy_(here)
    wait(one)
    wait(other)
    began = time.perf_counter()
    for _ in range(rounds):
        there.copy_(here)
    wait(one)
    wait(other)
    return round(size * rounds / (time.perf_counter() - began) / 1e9, 1)
