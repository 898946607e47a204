"""Whether a user's own packages, or variables of a host, reach the Python of this environment."""

import json
import os
import subprocess
import sys
import tempfile

NAMES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "LD_LIBRARY_PATH", "LD_PRELOAD")
CHILD = """
import json, site, sys
try:
    import torchyard_leak
    leaked = True
except ImportError:
    leaked = False
print(json.dumps({"leaked": leaked, "enabled": bool(site.ENABLE_USER_SITE), "argument": sys.argv[1]}))
"""


def facts(device):
    """What is set, and whether a module in a home's user site can be imported: homes are mounted on clusters."""
    return {
        "variables": {n: v for n, v in sorted(os.environ.items()) if n in NAMES or n.startswith("CONDA_")},
        "user_site": _user_site(),
    }


def _user_site():
    with tempfile.TemporaryDirectory() as home:
        folder = os.path.join(home, ".local", "lib", "python{}.{}".format(*sys.version_info[:2]), "site-packages")
        os.makedirs(folder)
        with open(os.path.join(folder, "torchyard_leak.py"), "w") as module:
            module.write("")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUSERBASE"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, "x"],
            env=dict(environment, HOME=home),
            cwd="/",
            capture_output=True,
            text=True,
        )
    if done.returncode:
        return {"error": done.stderr[-1000:]}
    return json.loads(done.stdout)
