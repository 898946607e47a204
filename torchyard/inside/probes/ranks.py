"""Several ranks on this machine: all-reduce, a step of DDP and synchronised statistics against one process."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

from . import far, wait

SECONDS = 60  # for ranks to meet
ONE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "one.py")


def facts(device, rank="", world="", port="", log=""):
    """What rank 0 saw, and how each rank ended; called with a rank it is that rank."""
    if rank:
        return _rank(device, int(rank), int(world), port)
    return _all(device)


def _count(device):
    if device != "cuda":
        return 2
    import torch

    return torch.cuda.device_count()


def _all(device):
    world = _count(device)
    if not world:
        return {"world": 0, "backend": "nccl"}
    store = _store(0, True)  # ours, so that it outlives every rank
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, f"rank{rank}.json") for rank in range(world)]
        logs = [os.path.join(folder, f"nccl{rank}.log") for rank in range(world)]
        started = [
            subprocess.Popen(
                [sys.executable, ONE, "ranks", device, files[rank], str(rank), str(world), str(store.port)],
                env=dict(os.environ, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,GRAPH", NCCL_DEBUG_FILE=logs[rank]),
            )
            for rank in range(world)
        ]
        codes = [process.wait() for process in started]
        seen = [_read(path) for path in files]
        transports = sorted({each for path in logs for each in transport(_text(path))})
    errors = [each["error"]["type"] + ": " + each["error"]["text"] for each in seen if "error" in each]
    first = seen[0].get("facts", {}) if seen else {}
    return dict(first, world=world, codes=codes, errors=errors, transports=transports)


def _store(port, first):
    """Where the ranks meet; torch picks the port where it is 0."""
    import datetime

    import torch.distributed as distributed

    return distributed.TCPStore(
        "127.0.0.1",
        port,
        is_master=first,
        timeout=datetime.timedelta(seconds=SECONDS),
        wait_for_workers=False,
    )


def _read(path):
    text = _text(path)
    return json.loads(text) if text else {}


def _text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def transport(log):
    """How NCCL says that its channels and its network go: P2P/CUMEM, SHM/direct, NET/IB, NET/Socket."""
    via = re.findall(r"via ((?:P2P|SHM|NET|NVLS|COLLNET)(?:/[A-Za-z]+)*)", log)
    using = ["NET/" + name for name in re.findall(r"Using network (\w+)", log)]
    return sorted({*via, *using})


def _rank(device, rank, world, port):
    import datetime

    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    backend = "nccl" if device == "cuda" else "gloo"
    place = f"cuda:{rank}" if device == "cuda" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    store = _store(int(port), False)
    distributed.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    try:
        seen = {
            "backend": backend,
            "sum": _sum(torch, distributed, place, rank),
            "ddp": _ddp(torch, place, rank, world),
            "statistics": _statistics(torch, distributed, place, rank, world),
            "sync_batch_norm": _sync_batch_norm(torch, place, rank, world),
            "bus_bandwidth": _bandwidth(torch, distributed, place, world),
        }
        distributed.barrier()
        store.set(f"done{rank}", "1")
        store.wait([f"done{each}" for each in range(world)])  # nobody hangs up on a rank that is still in the barrier
        return seen
    finally:
        distributed.destroy_process_group()


def _sum(torch, distributed, place, rank):
    """What a reduction of 1, 2, ... gives; the judge knows the sum."""
    tensor = torch.full((1000,), float(rank + 1), device=place)
    distributed.all_reduce(tensor)
    return [float(tensor.min()), float(tensor.max())]


def _data(torch, world):
    torch.manual_seed(11)
    return torch.randn(8 * world, 6), torch.randn(8 * world, 3)


def _net(torch):
    torch.manual_seed(13)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def _step(torch, model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def _ddp(torch, place, rank, world):
    """How far the weights after a step of all ranks are from those after a step of one process on all data."""
    x, y = (each.to(place) for each in _data(torch, world))
    alone = _step(torch, _net(torch).to(place), x, y)
    ids = [rank] if place.startswith("cuda") else None
    model = torch.nn.parallel.DistributedDataParallel(_net(torch).to(place), device_ids=ids)
    mine = slice(8 * rank, 8 * rank + 8)
    return far(_step(torch, model, x[mine], y[mine]), alone)


def _statistics(torch, distributed, place, rank, world):
    """How far batch norm with mean and variance reduced over the ranks is from batch norm in one process.

    This is what SyncBatchNorm computes: on a CPU torch itself refuses that module.
    """
    x = torch.randn(8 * world, 5, generator=torch.Generator().manual_seed(17)).to(place)
    whole = torch.nn.functional.batch_norm(x, None, None, training=True)
    mine = x[8 * rank : 8 * rank + 8]
    sums = torch.stack([mine.sum(0), (mine * mine).sum(0), torch.full((5,), 8.0, device=place)])
    distributed.all_reduce(sums)
    mean = sums[0] / sums[2]
    variance = sums[1] / sums[2] - mean * mean
    return far((mine - mean) / (variance + 1e-5).sqrt(), whole[8 * rank : 8 * rank + 8])


def _sync_batch_norm(torch, place, rank, world):
    """How far torch's own SyncBatchNorm is from batch norm in one process, or what it answers here."""
    x = torch.randn(8 * world, 5, generator=torch.Generator().manual_seed(19)).to(place)
    whole = torch.nn.BatchNorm1d(5).to(place)(x)
    try:
        synced = torch.nn.SyncBatchNorm(5).to(place)(x[8 * rank : 8 * rank + 8])
    except ValueError as error:
        return {"refused": str(error)[:300]}
    return {"far": far(synced, whole[8 * rank : 8 * rank + 8])}


def _bandwidth(torch, distributed, place, world):
    """Bus bandwidth of an all-reduce in GB/s, as nccl-tests counts it: 2 (n - 1) / n of the bytes by the time."""
    count, rounds = (1 << 26, 10) if place.startswith("cuda") else (1 << 20, 2)
    tensor = torch.ones(count, device=place)
    distributed.all_reduce(tensor)
    wait(place)
    began = time.perf_counter()
    for _ in range(rounds):
        distributed.all_reduce(tensor)
    wait(place)
    took = (time.perf_counter() - began) / rounds
    return round(2 * (world - 1) / world * count * 4 / took / 1e9, 3)
