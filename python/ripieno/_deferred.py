"""Import scikit-learn without the large libraries that it imports but rarely uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

#: scikit-learn imports these in `sklearn.utils.fixes` and uses them in few functions. They take two thirds of the time.
_RARELY_USED = ("pandas", "scipy.stats")


class _Deferred(ModuleType):
    """Stands for a module until one of its attributes is needed, and then imports it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer the import of pandas and SciPy's statistics to their first use by modules that are imported in the block.

    After the block, `import pandas` imports pandas as usual.
    """
    placeholders = {name: _Deferred(name) for name in _RARELY_USED if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    finally:
        for name, placeholder in placeholders.items():
            if sys.modules.get(name) is placeholder:
                del sys.modules[name]
