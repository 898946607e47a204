"""Runs one probe and says what it saw as JSON: `python one.py NAME [DEVICE [FILE [ARGUMENT ...]]]`; judges nothing.

Without FILE, or with `-`, it is printed. What a probe raises is a fact too.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
import traceback


def look(name, device, arguments):
    """The facts of a probe, or what it raised."""
    try:
        return {"facts": importlib.import_module("probes." + name).facts(device, *arguments)}
    except Exception as error:  # whatever stops a probe is what it saw
        lines = traceback.format_exc().strip().splitlines()
        return {"error": {"type": type(error).__name__, "text": str(error)[:4000], "lines": lines[-12:]}}


def main(argv):
    """Look, and write; SIGUSR1 has every thread say where it is."""
    faulthandler.register(signal.SIGUSR1)
    name, device, path = (*argv[:3], *("", "cpu", "-")[len(argv[:3]) :])
    seen = json.dumps(look(name, device, argv[3:]))
    if path == "-":
        print(seen)
        return
    with open(path, "w") as file:
        file.write(seen)
    # A thread of gloo that gives back the last collective's tensors while Python shuts down aborts the process, whose
    # work is done (pytorch/pytorch#179291): what a rank did is in the file.
    if name == "ranks":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
