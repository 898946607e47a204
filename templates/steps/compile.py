"""Compiles the Python files named on standard input to bytecode that is the same at every build.

The bytecode is of the unchecked-hash kind (PEP 552), so it holds no time. Python marks an object in it as shared when
something else in the process also refers to it; what else a process holds depends on the files it compiled before. So
every text of a file is held here while it is written, which makes all of them shared, always.
"""

import importlib.util
import marshal
import multiprocessing
import os
import sys
from types import CodeType

UNCHECKED_HASH = (0b01).to_bytes(4, "little")


def texts(value, held):
    """Collect every text in a constant or a code object."""
    if isinstance(value, str):
        held.append(value)
    elif isinstance(value, (tuple, frozenset)):
        for item in value:
            texts(item, held)
    elif isinstance(value, CodeType):
        for part in (value.co_consts, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars):
            texts(part, held)
        held += [value.co_name, value.co_qualname, value.co_filename]


def has_set(value):
    """Whether a constant or a code object holds a frozenset."""
    if isinstance(value, CodeType):
        return any(has_set(item) for item in value.co_consts)
    return isinstance(value, frozenset) or (isinstance(value, tuple) and any(has_set(item) for item in value))


def compile_file(path, fresh=False):
    """Write the bytecode of one file; a file that does not compile has none, as with pip.

    Answers the path, and writes nothing, where the file has to be compiled by a fresh process: Python makes a set of
    texts anew, so that two functions share it no more, when the process has met one of the texts before.
    """
    if not os.path.isfile(path):  # a folder of such a name, or a link to nothing
        return None
    with open(path, "rb") as stream:
        source = stream.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not fresh and has_set(code):
        return path
    held = []
    texts(code, held)
    target = importlib.util.cache_from_source(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as stream:
        stream.write(importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source))
        stream.write(marshal.dumps(code))
    return None


def compile_fresh(path):
    """The same in a child of its own, which has met nothing but what this script imports."""
    child = os.fork()
    if child == 0:
        try:
            compile_file(path, fresh=True)
        except BaseException as error:
            os.write(2, f"{path}: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} could not be compiled")


if __name__ == "__main__":
    os.umask(0o022)
    paths = sorted(os.fsdecode(line) for line in sys.stdin.buffer.read().split(b"\0") if line)
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        left = [path for path in pool.imap_unordered(compile_file, paths, chunksize=32) if path]
    for each in sorted(left):
        compile_fresh(each)
