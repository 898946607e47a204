"""The NVIDIA GPUs and the driver of this host, from the driver's own library, else from nvidia-smi."""

from __future__ import annotations

import ctypes
import platform
import shutil
from dataclasses import dataclass, field

from torchyard.errors import YardError
from torchyard.world import process

_NVML = "libnvidia-ml.so.1"
_QUERY = ["--query-gpu=driver_version,name,memory.total", "--format=csv,noheader,nounits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostGpu:
    """One GPU as the driver names it."""

    name: str
    memory_mib: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HostGpus:
    """What the driver tells: its version and the GPUs in order; `seen_by` is nvml, nvidia-smi or empty for none."""

    arch: str = field(default_factory=platform.machine)
    driver: str = ""
    gpus: tuple[HostGpu, ...] = ()
    seen_by: str = ""


def look() -> HostGpus:
    """The GPUs of this host; none where there is no driver or it does not answer."""
    return _nvml() or _smi() or HostGpus()


def parse_smi(text: str) -> HostGpus | None:
    """What nvidia-smi printed as CSV, or None where a line is no GPU."""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows or any(len(row) != 3 for row in rows):
        return None
    gpus = tuple(HostGpu(name=name, memory_mib=int(mib) if mib.isdigit() else 0) for _, name, mib in rows)
    return HostGpus(driver=rows[0][0], gpus=gpus, seen_by="nvidia-smi")


def _smi() -> HostGpus | None:
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    try:
        done = process.run([program, *_QUERY], timeout=20, check=False)
    except YardError:
        return None
    return parse_smi(done.out) if done.code == 0 else None


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _nvml() -> HostGpus | None:
    """The same from the library that comes with the driver; None where it is not there or refuses."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        driver = ctypes.create_string_buffer(80)
        count = ctypes.c_uint()
        if nvml.nvmlSystemGetDriverVersion(driver, 80) or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return None
        found = [_device(nvml, index) for index in range(count.value)]
        gpus = tuple(each for each in found if each is not None)
        return HostGpus(driver=driver.value.decode("ascii", "replace"), gpus=gpus, seen_by="nvml")
    finally:
        nvml.nvmlShutdown()


def _device(nvml: ctypes.CDLL, index: int) -> HostGpu | None:
    handle = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    memory = _Memory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) or nvml.nvmlDeviceGetName(handle, name, 96):
        return None
    known = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return HostGpu(name=name.value.decode("ascii", "replace"), memory_mib=memory.total >> 20 if known else 0)
