"""Import scikit-learn without the large libraries that it imports but rarely uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy

#: scikit-learn imports these in `sklearn.utils.fixes` and rarely uses them. They take two thirds of its import time.
_RARELY_USED = ("pandas", "scipy.stats")
#: SciPy imports these when it copies NumPy's names, but does not use them. They take half of the rest.
_COPIED = ("f2py", "testing")


class _Deferred(ModuleType):
    """Stands for a module until one of its attributes is needed, and then imports it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer imports of pandas, SciPy's statistics and two packages of NumPy in the block to their first use.

    After the block, `import pandas` imports pandas as usual.
    """
    placeholders = {name: _Deferred(name) for name in _RARELY_USED if name not in sys.modules}
    copied = {name: _Deferred(f"numpy.{name}") for name in _COPIED if name not in vars(numpy)}
    sys.modules.update(placeholders)
    vars(numpy).update(copied)
    try:
        yield
    finally:
        for name, placeholder in copied.items():
            if vars(numpy).get(name) is placeholder:
                delattr(numpy, name)
        for name, placeholder in placeholders.items():
            if sys.modules.get(name) is placeholder:
                del sys.modules[name]
