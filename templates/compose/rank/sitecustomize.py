"""Loaded by the Python of each rank: when an exception ends it, when that was and its traceback are kept for launch.py.

The script itself stays as it is. A sitecustomize of the image or of the user is loaded after this one.
"""

import atexit
import json
import os
import sys
import time
import traceback


def _keep(kind, value, trace, shown=sys.excepthook):
    """Write the traceback beside those of the other ranks, then show it as Python does."""
    try:
        path = os.path.join(os.environ["TORCHYARD_ERRORS"], f"{_RANK}-{_ATTEMPT}.json")
        text = "".join(traceback.format_exception(kind, value, trace))
        if os.getpid() == _PID and not os.path.exists(path):
            with open(path + ".part", "w") as file:
                json.dump({"rank": int(_RANK), "attempt": int(_ATTEMPT), "time": time.time(), "text": text}, file)
            os.replace(path + ".part", path)
    except (OSError, KeyError, ValueError):
        pass  # the traceback is still printed
    shown(kind, value, trace)


def _settle():
    """Let torch's threads give back what the last collective held.

    A thread of gloo that does so while Python shuts down aborts the process, whose work was done ("terminate called
    without an active exception"; pytorch/pytorch#179291). This runs after all else that runs at the end.
    """
    if "torch.distributed" in sys.modules:
        sys.stdout.flush()
        time.sleep(0.2)


def _next():
    """Load the sitecustomize that this one stands before."""
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


_RANK, _ATTEMPT = os.environ.get("RANK", ""), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
_PID = os.getpid()
if _RANK.isdigit() and os.environ.get("TORCHYARD_LAUNCHER") == str(os.getppid()):
    sys.excepthook = _keep
    atexit.register(_settle)
_next()
