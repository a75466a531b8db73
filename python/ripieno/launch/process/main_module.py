"""`__main__` of the process that launches, in the processes of its ranks.

What is defined there travels by value. On a rank whose process is its own it gets its name in `__main__`, too: `pickle`
finds it by that name, be it that of a program, of joblib or of multiprocessing. In a process that ranks of several jobs
share, as a worker of Dask, one name could stand for two things, so there it gets none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

# What multiprocessing calls the main module in the children that it starts.
_OF_MULTIPROCESSING = "__mp_main__"
# What has got its name from here, by name: the next definition of it, as of a notebook, takes its place. None in a
# process that is not one rank's own.
_named: dict[str, Any] | None = None


class MainModule(NamedTuple):
    """Where `__main__` comes from: a file, or the name of a module; neither in a notebook."""

    file: str | None
    name: str | None


def of_this_process() -> MainModule:
    """Its own."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    path = os.path.abspath(file) if file is not None and os.path.isfile(file) else None
    return MainModule(path, None if spec is None else spec.name)


def stand_in(launching: MainModule) -> None:
    """Let `__main__` of this process, a rank's own, be an empty one that says that it is the launching one's.

    So a child of multiprocessing, which imports the main script of its parent, finds that of the launching process.
    """
    global _named
    _named = {}
    main = ModuleType("__main__")
    if launching.file is not None:
        main.__file__ = launching.file
    main.__spec__ = None if launching.name is None else ModuleSpec(launching.name, None)
    sys.modules["__main__"] = main


def by_value() -> None:
    """Let what is defined in the main module of a child of multiprocessing travel by value, as that of `__main__`."""
    main = sys.modules.get(_OF_MULTIPROCESSING)
    if main is not None and _OF_MULTIPROCESSING not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(main)


def named(obj: Any, reduced: Any) -> Any:
    """`reduced`, how cloudpickle makes `obj` again, so that it gets its name on a rank if it is of `__main__`."""
    is_of_main = getattr(obj, "__module__", None) in ("__main__", _OF_MULTIPROCESSING)
    if not isinstance(obj, type | FunctionType) or not is_of_main or obj.__qualname__ != obj.__name__:
        return reduced
    if not isinstance(reduced, tuple) or obj.__name__ == "<lambda>":
        return reduced
    make, args, *rest = reduced
    return _make_named, (obj.__module__, obj.__name__, make, args), *rest


def _make_named(module: str, name: str, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    obj = make(*args)
    if _named is None:
        return obj
    main = sys.modules["__main__"]
    if module == _OF_MULTIPROCESSING:
        sys.modules.setdefault(module, main)
    # A name of somebody else stays his.
    if getattr(main, name, None) is _named.get(name):
        setattr(main, name, obj)
        _named[name] = obj
    return obj
