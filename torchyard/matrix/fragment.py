"""What is wrong with a file of Dockerfile instructions that shall follow a rendered one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchyard.matrix import variables
from torchyard.yaml_source import quote

ALLOWED = ("ARG", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR")
REFUSED = {
    "FROM": ("would start another image and leave this one out", "set the base with software.base"),
    "COPY": (
        "has no files to copy: the build context holds the recipe only",
        "write the text with a heredoc: COPY <<EOF /path",
    ),
    "ADD": ("has no files to add, and no network", "write the text with a heredoc: COPY <<EOF /path"),
    "ENTRYPOINT": (
        "is skipped by Pyxis and Apptainer, so nothing may depend on it",
        "use env, or give the command to run",
    ),
    "CMD": ("is skipped by Pyxis and Apptainer, so nothing may depend on it", "give the command to run"),
    "ONBUILD": ("acts in another build only", "write the instruction itself"),
}
_HEREDOC = re.compile(r"<<(-?)([\"']?)([A-Za-z_][A-Za-z0-9_]*)\2")
_RUN = re.compile(r"^(\s*RUN)(?=\s|\\|$)(.*)$", re.IGNORECASE)
_MOUNT = "--network=none --mount=type=bind,from=steps,target=/run/yard/steps"
_GPU_USE = re.compile(
    r"\bnvidia-smi\b|\.cuda\(|\bdevice=\\?[\"']?cuda|\b(?:to|device|set_default_device)\(\\?[\"']cuda"
    r"|torch\.cuda\.(?!is_available)"
)


def problems(text: str) -> Iterator[tuple[int, str, str]]:
    """Each mistake as line, what is wrong, what helps."""
    for number, line in enumerate(text.split("\n"), 1):
        if odd := next((c for c in line if not c.isprintable() and c != "\t"), ""):
            yield number, f"the character U+{ord(odd):04X} is not allowed", "use plain text with Unix line ends"
    for number, instruction in _instructions(text):
        yield from _judge(number, instruction)


def steps(text: str) -> list[str]:
    """What each step runs, in one line."""
    whole = (" ".join(instruction.replace("\\\n", " ").split()) for _, instruction in _instructions(text))
    return [words.partition(" ")[2] for words in whole if words.split(" ")[0].upper() == "RUN"]


def sealed(text: str) -> str:
    """The same instructions, where each step can reach the files of our own steps, among them what seals it."""
    lines = text.split("\n")
    for number, instruction in _instructions(text):
        if instruction.split(maxsplit=1)[0].upper() == "RUN":
            lines[number - 1] = _RUN.sub(rf"\1 {_MOUNT}\2", lines[number - 1], count=1)
    return "\n".join(lines)


def _judge(number: int, instruction: str) -> Iterator[tuple[int, str, str]]:
    if directive := re.match(r"#\s*(syntax|escape|check)\s*=", instruction, re.IGNORECASE):
        yield number, f"the directive {directive[1]}= is not allowed here", "leave it out"
        return
    word = instruction.split(maxsplit=1)[0]
    name = word.upper()
    heredoc = name in ("COPY", "ADD") and _HEREDOC.search(instruction) and "--from" not in instruction
    if name in REFUSED and not heredoc:
        what, hint = REFUSED[name]
        yield number, f"{name} {what}", hint
    elif name not in ALLOWED and not heredoc:
        yield number, f"{quote(word)} is no Dockerfile instruction that can stand here", f"one of {', '.join(ALLOWED)}"
    elif name == "RUN" and re.search(r"--(network|security|mount)\b", instruction.split("\n")[0].split("<<")[0]):
        yield (
            number,
            "RUN takes no --network, --security or --mount here",
            "build steps have no network and no other files",
        )
    elif name == "RUN" and _GPU_USE.search(instruction):
        yield (
            number,
            "a build step has no GPU; this one uses it",
            "do it when the image is verified or run: the driver's library (libcuda.so.1) is there from then on only",
        )
    elif name == "ENV" and (wrong := variables.of_instruction(instruction)) is not None:
        yield number, *wrong


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction whole, with its continuation lines and heredocs, and the number of its first line."""
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        stripped = line.strip()
        if not stripped or (
            stripped.startswith("#") and not re.match(r"#\s*(syntax|escape|check)\s*=", stripped, re.IGNORECASE)
        ):
            continue
        whole = [stripped]
        while not stripped.startswith("#") and whole[-1].endswith("\\"):
            _, more = next(lines, (0, ""))
            if not more.strip().startswith("#"):
                whole.append(more.strip())
            if not more:
                break
        for dash, _, end in _HEREDOC.findall("\n".join(whole)) if not stripped.startswith("#") else ():
            for _, more in lines:
                whole.append(more)
                if (more.lstrip("\t") if dash else more) == end:
                    break
        yield number, "\n".join(whole)
