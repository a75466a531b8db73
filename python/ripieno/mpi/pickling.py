"""`MPI.pickle`: a program may pickle its objects by other functions, such as `dill.dumps`."""

from __future__ import annotations

import pickle as standard
from collections.abc import Callable, Sequence
from typing import Any


class Pickle:
    """Functions that pickle objects.

    Objects that a communicator sends are pickled by protocol 5 unless `dumps` or `loads` is given. All ranks must use
    the same functions.

    Parameters
    ----------
    dumps, loads : callable, optional
        Functions like `pickle.dumps` and `pickle.loads`.
    protocol : int, optional
        Passed to `dumps`; by default protocol 5 for `pickle.dumps`, and none for another function.
    threshold : int, optional
        `dumps_oob` copies smaller arrays into the pickle; by default none.
    """

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[..., Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        self._dumps = dumps or standard.dumps
        self._loads = loads or standard.loads
        self.is_default = dumps is None and loads is None
        self.PROTOCOL = standard.HIGHEST_PROTOCOL if protocol is None and dumps is None else protocol
        self.THRESHOLD = threshold

    @property
    def THRESHOLD(self) -> int:
        """Size in bytes; `dumps_oob` returns the memory of arrays of this size or more."""
        return self._threshold

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        self._threshold = threshold or 0

    def dumps(self, obj: Any) -> bytes:
        """Return an object as bytes."""
        return self._dumps(obj) if self.PROTOCOL is None else self._dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        """Return the object of these bytes."""
        return self._loads(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[Any]]:
        """Return an object as bytes, and the memory of its arrays."""
        from ripieno.mpi.buffer import buffer

        found: list[buffer] = []

        def keep(memory: standard.PickleBuffer) -> bool:
            kept = buffer.frombuffer(memory.raw())
            if kept.nbytes >= self.THRESHOLD:
                found.append(kept)
            return kept.nbytes < self.THRESHOLD

        return standard.dumps(obj, standard.HIGHEST_PROTOCOL, buffer_callback=keep), found

    def loads_oob(self, data: Any, buffers: Sequence[Any]) -> Any:
        """Return the object of these bytes, with arrays in these buffers."""
        return standard.loads(data, buffers=buffers)


#: Pickles the objects that communicators send.
pickle = Pickle()


class _Custom:
    """An object in transit that the functions of the program pickle. Its own pickle is unpickled as the object."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return _loaded, (pickle.dumps(self._value),)


def leaving(value: Any) -> Any:
    """Return the wrapper that is sent instead of an object. It is unpickled as the object itself."""
    return value if pickle.is_default else _Custom(value)


def _loaded(data: bytes) -> Any:
    return pickle.loads(data)
