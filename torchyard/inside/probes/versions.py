"""Python, torch and its companions as they load: their versions, where they come from, who runs them."""

import importlib
import os
import platform
import pwd
import site
import sys
import warnings
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

NAMES = ("torch", "numpy", "torchvision", "torchaudio", "triton")


def facts(device):
    """What loads, from where, with which warnings."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "prefixes": sorted({sys.prefix, sys.base_prefix}),
        "uid": os.getuid(),
        "name": _name(),
        "user_site": [site.getusersitepackages(), bool(site.ENABLE_USER_SITE)],
        "path": [entry for entry in sys.path if entry != os.path.dirname(os.path.dirname(os.path.abspath(__file__)))],
        "modules": {name: _module(name) for name in NAMES},
    }


def _name():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def _module(name):
    """How one module loads; what stops it is a fact, and so is that it is not there."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            module = importlib.import_module(name)
        except Exception as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == name
            return {"absent": True} if absent else {"error": type(error).__name__ + ": " + str(error)[:1500]}
    found = {"version": getattr(module, "__version__", ""), "file": getattr(module, "__file__", "") or ""}
    try:
        found["installed"] = installed(name)
    except PackageNotFoundError:
        found["installed"] = ""
    if name == "torch":
        found["cuda"] = module.version.cuda
        found["cudnn"] = module.backends.cudnn.version() if module.version.cuda else None
    found["warnings"] = sorted({str(each.message)[:400] for each in caught if "numpy" in str(each.message).lower()})
    return found
