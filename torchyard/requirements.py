"""A user's requirements, checked line by line; no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchyard import wheelpin
from torchyard.errors import Incompatible, InputError, YardError, raise_all

# Options that a requirements file may hold and this one may not, with the way to say the same.
OPTIONS = {
    "index": (
        ("-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--trusted-host"),
        "an index or a directory of wheels is not set by a requirements file",
        "configure it for pip: `python3 -m pip config --user set global.extra-index-url URL` (or index-url, find-links)"
        + "; which build of torch is taken says the key software.cuda of env.yaml",
    ),
    "file": (
        ("-r", "--requirement", "-c", "--constraint"),
        "another file is not read",
        "write the requirements of that file here",
    ),
    "editable": (
        ("-e", "--editable"),
        "an editable requirement cannot be locked",
        "install it in the overlay environment of `shell`, or build a wheel into a directory of pip's find-links",
    ),
}
URL = "a requirement given as an address or a path cannot be locked by index, version and hash"
URL_HINT = (
    "write NAME==VERSION, and put the wheel into a directory that pip's find-links names, or serve it from an index"
)


def parse_requirements(text: str, where: str, *, torch: str | None = None) -> tuple[str, ...]:
    """The requirements of a file in one spelling, sorted; every line that is wrong is told in one go.

    With `torch`, the locked version, a line that names another torch is one of them.
    """
    problems: list[YardError] = []
    found: set[str] = set()
    for number, line in _logical_lines(text):
        try:
            requirement = parse_requirement(line, f"{where}:{number}")
            if torch is not None:
                check_torch(requirement, torch, f"{where}:{number}")
        except YardError as error:
            problems.append(error)
        else:
            found.add(str(requirement))
    raise_all(problems)
    return tuple(sorted(found, key=str.lower))


def parse_requirement(line: str, where: str) -> Requirement:
    """One requirement by name and version, or an error that says what to write instead."""
    if line.startswith("-"):
        raise _option(line, where)
    if re.search(r"\s--hash[= ]", line):
        raise InputError(
            f"a hash beside a requirement is not taken: {line}",
            where=where,
            hint="remove it: the lock holds the hashes",
        )
    if re.search(r"\$\{\w+\}", line):
        raise InputError(
            f"a variable in a requirement is not replaced: {line}", where=where, hint="write the value itself"
        )
    if re.match(r"([a-z][a-z0-9+.-]*:|\.{0,2}/|~/|[A-Za-z]:\\)", line) or re.search(r"\.(whl|tar\.gz|zip)$", line):
        raise InputError(f"{URL}: {line}", where=where, hint=URL_HINT)
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        if re.match(r"[A-Za-z0-9._-]+\s*(\[[^]]*\]\s*)?@", line):
            raise InputError(f"{URL}: {line}", where=where, hint=URL_HINT) from error
        reason = str(error).splitlines()[0]
        raise InputError(
            f"this is not a requirement: {line!r} ({reason})",
            where=where,
            hint="write NAME, NAME==VERSION or NAME>=VERSION",
        ) from error
    if requirement.url:
        raise InputError(f"{URL}: {line}", where=where, hint=URL_HINT)
    return requirement


def check_torch(requirement: Requirement, torch: str, where: str) -> None:
    """Nothing, or an error where this requirement names a torch that the locked one is not."""
    if canonicalize_name(requirement.name) != "torch":
        return
    if not requirement.specifier.contains(Version(torch), prereleases=True):
        raise Incompatible(
            f"{requirement} asks for another torch than the locked {torch}",
            where=where,
            hint="remove the line: torch is the key software.torch of env.yaml (or torch of the hardware entry)",
        )


def against(lines: Sequence[str], *, torch: str, cuda: str | None, where: str) -> list[YardError]:
    """What among checked requirements no image of this torch and CUDA can have: another torch, another CUDA's build."""
    found: list[YardError] = []
    for line in lines:
        requirement = Requirement(line)
        other = wheelpin.cuda_major(canonicalize_name(requirement.name))
        try:
            check_torch(requirement, torch, where)
        except YardError as error:
            found.append(error)
        if cuda and other and other != cuda.split(".")[0]:
            found.append(
                Incompatible(
                    f"{requirement} is made for CUDA {other}; torch {torch} brings CUDA {cuda}",
                    where=where,
                    hint=f"take the build for CUDA {cuda.split('.')[0]}, or set cuda: to one of CUDA {other} that this"
                    " torch has (./yard explain)",
                )
            )
    return found


def names(requirements: Sequence[str]) -> frozenset[str]:
    """The normalised names that these requirements begin with."""
    return frozenset(canonicalize_name(Requirement(each).name) for each in requirements)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, joined where they end in a backslash, with the number of their first."""
    start, joined = 0, ""
    for number, raw in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        start = start or number
        comment = raw.lstrip().startswith("#")
        if raw.endswith("\\") and not comment:
            joined += raw[:-1]
            continue
        line = re.sub(r"(^|\s)#.*$", "", joined + raw).strip()
        if line:
            yield start, line
        start, joined = 0, ""
    if joined.strip():
        yield start, joined.strip()


def _option(line: str, where: str) -> InputError:
    option = re.split(r"[\s=]", line, maxsplit=1)[0]
    for spellings, what, hint in OPTIONS.values():
        if option in spellings or (option[:2] in spellings and not option.startswith("--")):
            return InputError(f"{what}: {without_login(line)}", where=where, hint=hint)
    return InputError(
        f"an option is not taken here: {without_login(line)}",
        where=where,
        hint="remove it: only names with versions are read, and only wheels of final releases are locked",
    )


def without_login(line: str) -> str:
    """The line without the user name and the password of an address in it."""
    return re.sub(r"//[^/@\s]+@", "//", line)
