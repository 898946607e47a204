"""Which environment variables an image does not take from a user, and why."""

from __future__ import annotations

import re

_OURS = {
    "PATH": "it would hide the environment of torch; use extend for a program elsewhere",
    "LD_PRELOAD": "a library before all others makes the checks of the image worthless",
    "VIRTUAL_ENV": "it is the image's own",
    "PYTHONHOME": "it would hide the Python of the image",
    "PYTHONNOUSERSITE": "it is the image's own",
    "NVIDIA_REQUIRE_CUDA": "it follows the driver rule; overrule the rule with allow",
    "SOURCE_DATE_EPOCH": "it is the build's own, from the lock",
    "PIP_CONSTRAINT": "it holds torch in the image",
    "UV_CONSTRAINT": "it holds torch in the image",
    "DEBIAN_FRONTEND": "it belongs to a build step, not to an image",
}
_SECRET = re.compile(r"(?i).*(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|PRIVATE_KEY)")
_LOADER = "LD_LIBRARY_PATH"
_OF_ENV = re.compile(rf"(?:^ENV|\s)\s*{_LOADER}(?:=|\s+)(\"[^\"]*\"|\S+)", re.IGNORECASE)


def complaint(name: str, value: str | None) -> tuple[str, str] | None:
    """What is wrong with this variable in an image, and what helps; None where nothing is."""
    if name in _OURS:
        return f"{name} cannot be set here: {_OURS[name]}", "leave it out"
    if value and _SECRET.fullmatch(name):
        return f"{name} looks like a secret; an image tells it to all who can pull it", "give it when the image is run"
    return loader(value or "") if name == _LOADER else None


def loader(value: str) -> tuple[str, str] | None:
    """What is wrong with these folders before all others of the loader; the linker's LIBRARY_PATH is another thing."""
    if "stubs" in value:
        return (
            "the stubs of the CUDA toolkit would hide the driver's own library",
            "leave the stubs directory out; a linker takes it from LIBRARY_PATH or -L",
        )
    if re.search(r"cuda|nvidia|cudnn", value, re.IGNORECASE):
        return "another CUDA on the loader's path takes the place of the wheel's own", "leave it out"
    return None


def of_instruction(instruction: str) -> tuple[str, str] | None:
    """The same of an ENV instruction of a Dockerfile."""
    found = (loader(value) for value in _OF_ENV.findall(instruction))
    return next((each for each in found if each is not None), None)
