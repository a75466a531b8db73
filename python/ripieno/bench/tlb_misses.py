"""Provide counters of dTLB load misses of threads, by perf_event_open(2). Many virtual machines have none."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

#: Number of the system call by machine.
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}
#: PERF_TYPE_HW_CACHE; read misses of the data TLB; the counter excludes the kernel and the hypervisor.
_TYPE, _EVENT, _USER_ONLY = 3, 3 | 0 << 8 | 1 << 16, 1 << 5 | 1 << 6
_ATTRIBUTE_BYTES = 112


class TlbMisses:
    """Counts the misses of some threads of this process from its creation on.

    Parameters
    ----------
    thread_ids
        System ids of the threads.
    """

    def __init__(self, thread_ids: Iterable[int]) -> None:
        attribute = struct.pack("=IIQQQQQ", _TYPE, _ATTRIBUTE_BYTES, _EVENT, 0, 0, 0, _USER_ONLY)
        attribute = attribute.ljust(_ATTRIBUTE_BYTES, b"\0")
        number = _SYSTEM_CALL.get(platform.machine())
        call = ctypes.CDLL(None).syscall
        self._counters = [-1 if number is None else call(number, attribute, tid, -1, -1, 0) for tid in thread_ids]

    def stop(self) -> int | None:
        """Return the number of misses since the creation, and close the counters; None if a thread has none."""
        opened = [counter for counter in self._counters if counter >= 0]
        values = [int.from_bytes(os.read(counter, 8), "little") for counter in opened]
        for counter in opened:
            os.close(counter)
        return sum(values) if len(opened) == len(self._counters) else None
