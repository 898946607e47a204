"""The devices that a container was given, and the driver behind them."""

import ctypes
import os
import platform
import re
import shutil
import subprocess

from . import mapped

VARIABLES = ("CUDA_", "NVIDIA_")  # what their names begin with
SMI_SECONDS = 20


def facts(device):
    """Names, compute capabilities and memory of the devices, and what stops torch from using them."""
    import torch

    seen = {
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
        "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
        "driver": driver(),
        "slices": slices(_smi()),
        "torch_cuda": torch.version.cuda,
        "arch_list": torch.cuda.get_arch_list() if torch.version.cuda else [],
    }
    if device != "cuda":
        return dict(seen, devices=[{"name": platform.processor() or platform.machine(), "cc": "", "memory": 0}])
    try:
        torch.cuda.init()
        return dict(seen, devices=[_one(torch, index) for index in range(torch.cuda.device_count())])
    except Exception as error:  # no driver, one that is too old, no permission: each says so
        told = type(error).__name__ + ": " + str(error)[:1000]
        return dict(seen, devices=[], error=told, libcuda=mapped(words=("libcuda.so",)))


def _one(torch, index):
    properties = torch.cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", ""))
    return {
        "name": properties.name,
        "cc": f"{properties.major}.{properties.minor}",
        "memory": properties.total_memory,
        "processors": properties.multi_processor_count,
        "uuid": uuid,
        "mig": "MIG " in properties.name or uuid.startswith("MIG"),
    }


def _smi():
    """What `nvidia-smi -L` prints, where the container was given it: CUDA shows a process one MIG slice of all."""
    program = shutil.which("nvidia-smi")
    if not program:
        return ""
    try:
        return subprocess.run([program, "-L"], capture_output=True, text=True, timeout=SMI_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def slices(text):
    """The MIG slices in what `nvidia-smi -L` prints, by card: [["NVIDIA A100-SXM4-40GB", ["3g.20gb", "3g.20gb"]]]."""
    cards = []
    for line in text.splitlines():
        card = re.match(r"GPU \d+: (.+?) \(UUID: ", line)
        part = re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ", line)
        if card:
            cards.append([card.group(1), []])
        elif part and cards:
            cards[-1][1].append(part.group(1))
    return [card for card in cards if card[1]]


def driver():
    """The version of the NVIDIA driver: from its library, else from the kernel module; empty for none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(80)
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, 80) == 0:
            return text.value.decode("ascii", "replace")
    except (OSError, AttributeError):
        pass
    try:
        with open("/proc/driver/nvidia/version") as file:
            return of_module(file.read())
    except OSError:
        return ""


def of_module(text):
    """The version in what /proc/driver/nvidia/version says."""
    words = text.split()
    return next((word for word in words if word[:1].isdigit() and word.count(".") in (1, 2)), "")
