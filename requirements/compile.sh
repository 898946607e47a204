#!/bin/sh
# Makes tool.txt (from pyproject.toml) and dev.txt (from dev.in as well) anew, for every Python and processor that
# torchyard runs on, and services.txt, which tests install on top of the CPU image, for its Python: versions with hashes,
# no addresses. Arguments go to uv: --upgrade moves everything to the newest.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
uv=$here/../.venv/bin/uv
cd "$here"
compile() {
    "$uv" pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-annotate --custom-compile-command "requirements/compile.sh" "$@"
}
compile --universal ../pyproject.toml --output-file tool.txt "$@"
compile --universal ../pyproject.toml dev.in --constraint tool.txt --output-file dev.txt "$@"
compile --universal bench.in --constraint tool.txt --output-file bench.txt "$@"
compile --python-platform x86_64-manylinux_2_28 services.in --output-file services.txt \
    --no-emit-package numpy --no-emit-package setuptools "$@" # the image has them
