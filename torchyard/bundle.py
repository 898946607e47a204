"""What a bundle holds: everything from which a machine without a network builds the same image, under which names."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from . import json_text
from .errors import InputError
from .lock import LockedImage

SCHEMA = 1
DOCUMENT = "bundle.json"
START = "offline.sh"
WHEELS = "wheels"  # of torchyard itself
REQUIREMENTS = f"{WHEELS}/requirements.txt"
STORE = ".torchyard/store"
PIECE = "torchyard.json"  # in an archive with a finished image: what the receipt says


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What bundle.json says: for which images, and for which Python and machine the tool's own wheels are."""

    images: tuple[str, ...]
    torchyard: str
    python: str  # "3.11"
    machine: str  # "x86_64"


def name(images: Sequence[str], epoch: int, *, finished: bool = False) -> str:
    """The name of the archive's folder: the image, or how many they are, and the day of the newest archive."""
    day = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y%m%d")
    what = images[0] if len(images) == 1 else f"{len(images)}-images"
    return f"{what}-{day}" + ("-image" if finished else "")


def stored(locks: Iterable[LockedImage], base_blobs: Mapping[str, int]) -> dict[str, int]:
    """The files of the store that go in, by sha256, with their sizes: what locks pin, and the blobs of their bases."""
    found: dict[str, int] = dict(base_blobs)
    for lock in locks:
        found.update(lock.files())
    return dict(sorted(found.items()))


def store_path(sha256: str) -> str:
    """Where a stored file is in a bundle."""
    return f"{STORE}/{sha256[:2]}/{sha256}"


def document(made: Made, files: Mapping[str, tuple[int, str]]) -> str:
    """bundle.json: what it is for, and size and sha256 of every file but the store's, which are named by theirs."""
    listed = {path: {"size": size, "sha256": sha256} for path, (size, sha256) in sorted(files.items())}
    values = {
        "schema": SCHEMA,
        "images": list(made.images),
        "torchyard": made.torchyard,
        "python": made.python,
        "machine": made.machine,
        "files": listed,
    }
    return json.dumps(values, indent=1) + "\n"


def read(text: str, where: str) -> Made:
    """What the bundle.json says that `document` made."""
    try:
        data = json_text.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, this torchyard reads {SCHEMA}")
        return Made(
            images=tuple(data["images"]),
            torchyard=str(data["torchyard"]),
            python=str(data["python"]),
            machine=str(data["machine"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{where} is not a bundle of torchyard: {error}", where=where, hint="make one: ./yard bundle --gpu NAME"
        ) from error


def start_script(made: Made) -> str:
    """offline.sh: sets torchyard up from the bundle's own wheels, and builds; nothing asks a network."""
    build = f"--id {made.images[0]}" if len(made.images) == 1 else ""
    return f"""#!/bin/sh
# Builds {", ".join(made.images)} from what lies here, without a network. Made by torchyard {made.torchyard}.
# Needs Python {made.python} with venv on {made.machine}, and a container engine. Other verbs: ./offline.sh matrix
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
venv=$here/.torchyard/offline-venv
python=
fits='import ensurepip, sys, venv; sys.exit("%d.%d" % sys.version_info[:2] != "{made.python}")'
for each in "${{TORCHYARD_PYTHON:-python{made.python}}}" python3; do
    if "$each" -c "$fits" 2>/dev/null; then
        python=$each
        break
    fi
done
if [ -z "$python" ]; then
    printf 'error: this bundle has wheels for Python {made.python}, and there is none with venv here\\n' >&2
    printf ' hint: install python{made.python}-venv, or name one: TORCHYARD_PYTHON=/path/to/python{made.python}\\n' >&2
    exit 3
fi
if [ ! -f "$venv/whole" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --isolated --no-index --no-cache-dir \\
        --no-deps --only-binary :all: --find-links "$here/{WHEELS}" --require-hashes -r "$here/{REQUIREMENTS}"
    touch "$venv/whole"
fi
cd "$here"
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
[ $# -gt 0 ] || set -- build --offline {build}
exec "$venv/bin/python" -P -m torchyard "$@"
"""
