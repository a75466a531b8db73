"""`__main__` of the launching process, in the processes of its ranks.

Objects defined in `__main__` are pickled by value. If a rank has its own process, they are also set as attributes of
`__main__` there: `pickle` finds them by name, as programs, joblib and multiprocessing require. A process that serves
several jobs, such as a Dask worker, sets no attributes, because a name could have two meanings there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

# Name of the main module in child processes of multiprocessing.
_OF_MULTIPROCESSING = "__mp_main__"
# Attributes set by this module, by name. A later definition, as in a notebook, replaces an earlier one. None in a
# process that does not belong to one rank.
_named: dict[str, Any] | None = None


class MainModule(NamedTuple):
    """Origin of `__main__`: a file, or the name of a module; neither in a notebook."""

    file: str | None
    name: str | None


def current_main() -> MainModule:
    """Return the main module of this process."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    path = os.path.abspath(file) if file is not None and os.path.isfile(file) else None
    return MainModule(path, None if spec is None else spec.name)


def replace_main(launching: MainModule) -> None:
    """Replace `__main__` of a rank's own process by an empty module that names the launching main module as its origin.

    A child process of multiprocessing imports its parent's main script, and thus finds the launching script.
    """
    global _named
    _named = {}
    main = ModuleType("__main__")
    if launching.file is not None:
        main.__file__ = launching.file
    main.__spec__ = None if launching.name is None else ModuleSpec(launching.name, None)
    sys.modules["__main__"] = main


def pickle_main_by_value() -> None:
    """Pickle objects of a multiprocessing child's main module by value, like objects of `__main__`."""
    main = sys.modules.get(_OF_MULTIPROCESSING)
    if main is not None and _OF_MULTIPROCESSING not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(main)


def by_name(obj: Any, reduced: Any) -> Any:
    """Extend `reduced`, cloudpickle's reduction of `obj`, so that objects of `__main__` are set by name on a rank."""
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
    # Do not replace an attribute that other code has set.
    if getattr(main, name, None) is _named.get(name):
        setattr(main, name, obj)
        _named[name] = obj
    return obj
