"""Whether pip and uv refuse to put another torch in the place of this one; nothing is installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

OTHER = "0.0.1"


def facts(device):
    """What each installer answers to `install torch==0.0.1`, which a folder offers; without a network."""
    with tempfile.TemporaryDirectory() as folder:
        _wheel(folder)
        offline = ["--dry-run", "--no-index", "--find-links", folder, "torch==" + OTHER]
        pip, uv = importlib.util.find_spec("pip"), shutil.which("uv")
        return {
            "other": OTHER,
            "pip": _ask([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *offline], folder)
            if pip
            else None,
            "uv": _ask([uv, "pip", "install", "--offline", "--python", sys.executable, *offline], folder)
            if uv
            else None,
        }


def _ask(argv, folder):
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ, UV_CACHE_DIR=os.path.join(folder, "cache")),
    )
    return {"code": done.returncode, "said": done.stdout.strip().replace(folder, "FOLDER")[-1500:]}


def _wheel(folder):
    info = f"torch-{OTHER}.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, f"torch-{OTHER}-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("torch/__init__.py", "")
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {OTHER}\n")
        wheel.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\nGenerator: probe\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(info + "RECORD", f"{info}RECORD,,\n")
