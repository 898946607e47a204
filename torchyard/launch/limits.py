"""How much shared memory and which limits a training container gets, from what the host has."""

from __future__ import annotations

GIB = 1 << 30
PER_GPU = 8 * GIB  # shared memory for the DataLoader workers and NCCL of one process
STACK = 64 << 20  # bytes; deep recursion in compilers
OPEN_FILES = 65536


def shared_memory(host: int, gpus: int) -> int:
    """Bytes of /dev/shm: 8 GiB a GPU, at most half of the host's memory (bytes), at least the engine's own 64 MiB."""
    return max(min(PER_GPU * gpus, host // 2), 64 << 20)


def ulimits(*, may_raise: bool) -> list[str]:
    """`docker run --ulimit` values. A host that may not raise limits (rootless, some VMs) gets those it can have."""
    if not may_raise:
        return []
    return ["memlock=-1:-1", f"stack={STACK}:{STACK}", f"nofile={OPEN_FILES}:{OPEN_FILES}"]
