"""The calls of a communicator that correspond to names of mpi4py, for the errors about missing attributes."""

from __future__ import annotations

_PAGE = "see the page on programs of mpi4py, docs/from-mpi4py.md, or use `from ripieno import mpi as MPI`"
_NAMES = {
    "get_rank": "rank",
    "size": "world_size",
    "get_size": "world_size",
    "bcast": "broadcast",
    "allgatherv": "allgather",
    "gatherv": "gather",
    "scatterv": "scatter",
    "alltoallv": "alltoall",
    "reduce_scatter_block": "reduce_scatter",
    "isend": "send",
    "irecv": "recv",
    "ibcast": "broadcast_async",
    "dup": "split",
    "create": "split",
    "abort": "abort",
}
#: Attributes of instances, which the class does not have.
_FIELDS = ("rank", "world_size")
_MPI_ONLY = ("win", "file", "spawn", "create_cart", "create_graph", "create_intercomm", "get_group", "free")


def advice(name: str, known: type) -> str:
    """Return the advice for an attribute `name` that the class `known` does not have; empty if no name is similar."""
    lowercase = name.lower()
    candidates = [_NAMES.get(lowercase, lowercase)]
    if lowercase.startswith("i"):
        blocking = lowercase[1:]
        candidates.append(f"{_NAMES.get(blocking, blocking)}_async")
    call = next((each for each in candidates if each != name and (each in _FIELDS or hasattr(known, each))), None)
    if call is not None:
        return f"; use {call!r} instead. For the names of mpi4py, {_PAGE}"
    return f": it exists only in MPI; {_PAGE}" if lowercase in _MPI_ONLY else ""
