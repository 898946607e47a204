#!/bin/sh
# Makes tool.txt (from pyproject.toml) and dev.txt (from dev.in as well) anew, for every Python and processor that
# torchyard runs on: versions with hashes, no addresses. Arguments go to uv: --upgrade moves everything to the newest.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
uv=$here/../.venv/bin/uv
cd "$here"
compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-annotate --custom-compile-command "requirements/compile.sh" "$@"
}
compile ../pyproject.toml --output-file tool.txt "$@"
compile ../pyproject.toml dev.in --constraint tool.txt --output-file dev.txt "$@"
