"""Whether a DataLoader's workers hand over batches of a usual size through shared memory."""

import os

WORKERS, PREFETCH, BATCH, SHAPE = 2, 2, 32, (3, 224, 224)  # what a training on ImageNet has in flight at the least


class Pictures:
    """A data set whose items tell their index."""

    def __len__(self):
        return WORKERS * PREFETCH * BATCH

    def __getitem__(self, index):
        import torch

        return torch.full(SHAPE, float(index % 11)), index


def facts(device):
    """The size of /dev/shm, what the batches need, and whether they came whole; all are held, as prefetching does."""
    import torch

    size = BATCH * SHAPE[0] * SHAPE[1] * SHAPE[2] * 4
    there = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    seen = {
        "shm": there.f_blocks * there.f_frsize if there else 0,
        "free": there.f_bavail * there.f_frsize if there else 0,
        "batch": size,
        "needed": size * WORKERS * PREFETCH,
        "workers": WORKERS,
        "strategy": torch.multiprocessing.get_sharing_strategy(),
    }
    loader = torch.utils.data.DataLoader(
        Pictures(), batch_size=BATCH, num_workers=WORKERS, prefetch_factor=PREFETCH, pin_memory=device == "cuda"
    )
    try:
        batches = list(loader)
    except RuntimeError as error:
        return dict(seen, error=_cut(str(error)))
    good = [bool((batch[:, 0, 0, 0] == (index % 11)).all()) for batch, index in batches]
    order = torch.cat([index for _, index in batches]).tolist() == list(range(len(loader.dataset)))
    moved = [float(batch.to(device).mean()) for batch, _ in batches]
    return dict(seen, batches=len(batches), whole=all(good), ordered=order, mean=sum(moved) / len(moved))


def _cut(text):
    """The beginning and the end of a long error: the cause is in the last line of the worker's traceback."""
    return text if len(text) < 2000 else text[:800] + "\n...\n" + text[-1000:]
