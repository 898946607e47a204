# Made by `torchyard render`; do not edit.
"""need.py MODULE DISTRIBUTION COMMAND...: becomes the command where there is the module, else says how to have it."""

import importlib.util
import os
import sys

module, distribution, *command = sys.argv[1:]
if importlib.util.find_spec(module) is None:
    print(
        f"error: {distribution} is neither in this image nor in the environment on top of it\n"
        f" hint: add {distribution} to packages.pip in env.yaml, then ./yard build; or, for this clone only: "
        f"docker compose run --rm shell pip install {distribution}",
        file=sys.stderr,
    )
    sys.exit(2)
os.execvp(command[0], command)
