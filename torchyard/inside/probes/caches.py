"""Whether the folders in which torch and its companions keep what they make can be written by this user."""

import contextlib
import os
import tempfile

VARIABLES = ("HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_HOME", "HF_HOME")


def facts(device):
    """Each place and what trying to write there gave; who asks."""
    places = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    places["temporary"] = tempfile.gettempdir()
    places.update(_of_torch())
    return {"uid": os.getuid(), "places": {name: [path, tried(path)] for name, path in sorted(places.items())}}


def _of_torch():
    """The folders that torch itself would use."""
    try:
        import torch
    except Exception:  # the probe of versions tells why
        return {}
    found = {"torch.hub": torch.hub.get_dir()}
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        found["torch.compile"] = cache_dir()
    except ImportError:
        pass
    except Exception as error:  # B109: it asks for the name of a user that has none
        found["torch.compile"] = f"{type(error).__name__}: {error}"
    return found


def tried(path):
    """Empty where a file could be made there, also below it; else why not. Nothing that it makes stays."""
    made = []
    try:
        missing = path
        while not os.path.isdir(missing) and missing not in ("", "/"):
            made.append(missing)
            missing = os.path.dirname(missing)
        for folder in reversed(made):
            os.mkdir(folder)
        with tempfile.NamedTemporaryFile(dir=path):
            return ""
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
