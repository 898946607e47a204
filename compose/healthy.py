# Made by `torchyard render`; do not edit.
"""healthy.py: ends with 0 where the driver still shows this container its GPUs, else with 1 and what it says.

A container can lose them while its processes go on: where systemd takes the devices back, or where a card falls off the
bus. Asking the driver takes no memory of the GPU, which a kernel would.
"""

import ctypes
import signal
import sys

NVML = "libnvidia-ml.so.1"  # comes with the driver
WITHIN = 5  # seconds; a driver that hangs ends this process
NOT_PERMITTED = 4  # the card of a MIG slice need not be open to us


def trouble(nvml):
    """What is wrong with the GPUs, empty where nothing is; nvml is the driver's library."""
    code = nvml.nvmlInit_v2()
    if code:
        return f"the driver does not answer: {text(nvml, code)}"
    count = ctypes.c_uint()
    code = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if code or not count.value:
        return f"the driver shows no GPU: {text(nvml, code)}"
    for index in range(count.value):
        code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(ctypes.c_void_p()))
        if code not in (0, NOT_PERMITTED):
            return f"GPU {index} of {count.value} is lost: {text(nvml, code)}"
    return ""


def text(nvml, code):
    """What the library calls this code."""
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    return f"{nvml.nvmlErrorString(code).decode()} ({code})"


def main():
    """Ask and answer the exit code."""
    signal.alarm(WITHIN)
    try:
        found = trouble(ctypes.CDLL(NVML))
    except OSError as error:
        found = f"the driver's library is not in this container: {error}"
    print(found or "the GPUs are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
