"""Provide the parser for ``ripieno run python script.py``: an interpreter and its options precede the script."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ripieno.errors import InputError

# Interpreter options that ranks accept: options without a value, and options with a value.
_FLAGS = re.compile(r"-[uOBbqsvd]+")
_VALUED = ("-W", "-X")


class Target(NamedTuple):
    """A parsed command: options of the interpreter, a file or the name of a module, and its arguments."""

    flags: tuple[str, ...]
    module: bool
    name: str
    arguments: tuple[str, ...]


def is_python(word: str) -> bool:
    """Return whether `word` names a Python interpreter and not a script in this folder."""
    named = re.fullmatch(r"python(\d+(\.\d+)?)?", os.path.basename(word)) is not None
    return named and (os.path.dirname(word) != "" or not os.path.isfile(word))


def target_of(python: str, words: Sequence[str]) -> Target:
    """Return the target of the command ``python words``.

    Raises
    ------
    InputError
        If it names another Python, or has no script or module.
    """
    _check_is_this(python)
    flags: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "-m":
            break
        if word in _VALUED and rest:
            flags += [word, rest.pop(0)]
        elif _FLAGS.fullmatch(word) or word.startswith(_VALUED):
            flags.append(word)
        else:
            raise InputError(
                f"{word}: expected a script or -m and a module; only the options -u, -O, -B, -b, -q, -s, -v, -d, "
                "-W and -X may precede it"
            )
    else:
        word = ""
    if not rest:
        raise InputError(f"{python}: expected a script or -m and a module behind it")
    return Target(tuple(flags), word == "-m", rest[0], tuple(rest[1:]))


def _check_is_this(python: str) -> None:
    folder, name = os.path.split(python)
    mine = (f"python{sys.version_info.major}", f"python{sys.version_info.major}.{sys.version_info.minor}", "python")
    here = os.path.dirname(os.path.abspath(sys.executable))
    if name not in mine or (folder and os.path.abspath(folder) != here):
        raise InputError(
            f"{python}: ranks run in the Python that runs ripieno, {sys.executable}: give the script without {python}"
        )
