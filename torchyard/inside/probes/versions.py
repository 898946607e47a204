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


def searched(name, folders=None):
    """The files whose names begin so in the folders of LD_LIBRARY_PATH, which a loader takes first."""
    folders = os.environ.get("LD_LIBRARY_PATH", "") if folders is None else folders
    found = []
    for folder in folders.split(":"):
        files = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        found += [os.path.realpath(os.path.join(folder, file)) for file in files if file.startswith(name)]
    return list(dict.fromkeys(found))


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
            if absent:
                return {"absent": True}
            told = type(error).__name__ + ": " + str(error)[:1500]
            return dict({"error": told}, **({"nvjitlink": searched("libnvJitLink.so")} if "nvJitLink" in told else {}))
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
