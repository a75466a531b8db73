"""Provide alternative policies for choosing an algorithm: always the same one, and Open MPI's table.

Source of the table: Open MPI's ``coll_tuned_decision_fixed.c`` (main branch, 2026), for commutative operations. Its
algorithms map to our algorithms with the same messages: Rabenseifner's to halving and doubling, or to a reduce-scatter
and a gather; pipelines and segmented rings to chains and rings; nonoverlapping ones to a tree.
"""

from __future__ import annotations

from collections.abc import Callable

#: (upper limit of ranks, ((upper limit of bytes, algorithm), ...)); limits are exclusive, None for the rest.
_Rows = tuple[tuple[int, tuple[tuple[int | None, str], ...]], ...]

_ALLREDUCE: _Rows = (
    (
        4,
        (
            (8, "ring"), (4096, "bidirectional-exchange"), (8192, "ring"), (16384, "bidirectional-exchange"),
            (262144, "ring"), (None, "halving-doubling"),
        ),
    ),
    (8, ((16, "ring"), (8192, "bidirectional-exchange"), (None, "halving-doubling"))),
    (16, ((8192, "bidirectional-exchange"), (None, "halving-doubling"))),
    (32, ((64, "ring"), (4096, "bidirectional-exchange"), (None, "halving-doubling"))),
    (64, ((128, "ring"), (None, "halving-doubling"))),
)  # fmt: skip
_BROADCAST: _Rows = (
    (
        4,
        (
            (32, "chain"), (256, "binary"), (512, "chain"), (1024, "k-nomial"), (32768, "flat"), (131072, "binary"),
            (262144, "chain"), (524288, "flat"), (1048576, "binomial"), (None, "binary"),
        ),
    ),
    (
        8,
        (
            (64, "binary"), (128, "binomial"), (2048, "binary"), (8192, "binomial"), (1048576, "flat"),
            (None, "chain"),
        ),
    ),
    (16, ((8, "k-nomial"), (64, "binary"), (4096, "k-nomial"), (16384, "binary"), (32768, "binomial"), (None, "flat"))),
    (32, ((4096, "k-nomial"), (1048576, "binomial"), (None, "scatter-allgather"))),
    (64, ((2048, "binomial"), (None, "k-nomial"))),
)  # fmt: skip
_REDUCE: _Rows = (
    (4, ((8, "reduce-scatter-gather"), (16, "binary"), (32, "chain"), (262144, "flat"), (None, "chain"))),
    (
        8,
        (
            (4096, "binary"), (65536, "chain"), (262144, "binomial"), (524288, "flat"), (1048576, "binomial"),
            (None, "flat"),
        ),
    ),
    (16, ((8192, "binary"), (None, "binomial"))),
    (32, ((4096, "binary"), (None, "binomial"))),
    (64, ((None, "binomial"),)),
)  # fmt: skip
_ALLGATHER: _Rows = (
    (3, ((None, "direct"),)),
    (32, ((None, "recursive-doubling"),)),
    (64, ((1024, "recursive-doubling"), (65536, "neighbour-exchange"), (None, "ring"))),
)
_REDUCE_SCATTER: _Rows = (
    (4, ((65536, "ring"), (131072, "halving"), (None, "ring"))),
    (8, ((8, "direct"), (262144, "halving"), (None, "ring"))),
    (32, ((262144, "halving"), (None, "ring"))),
    (64, ((64, "direct"), (524288, "halving"), (None, "ring"))),
)
_OPEN_MPI: dict[str, _Rows] = {
    "allreduce": _ALLREDUCE,
    "broadcast": _BROADCAST,
    "reduce": _REDUCE,
    "allgather": _ALLGATHER,
    "reduce-scatter": _REDUCE_SCATTER,
}


#: Returns the algorithm for a collective, a number of ranks and bytes, or None if the policy has no rule.
Policy = Callable[[str, int, int], str | None]


def _open_mpi(collective: str, world_size: int, size_bytes: int) -> str | None:
    # In Open MPI's table, the bytes of an allgather are the bytes of a rank's block.
    size_bytes = size_bytes // world_size if collective == "allgather" else size_bytes
    rows = next((rows for ranks, rows in _OPEN_MPI.get(collective, ()) if world_size < ranks), ())
    return next((name for limit, name in rows if limit is None or size_bytes < limit), None)


def _always(name: str, *collectives: str) -> Policy:
    return lambda collective, _ranks, _bytes: name if collective in collectives else None


POLICIES: dict[str, Policy] = {
    "always ring": _always("ring", "allreduce", "allgather", "reduce-scatter"),
    "always chain": _always("chain", "broadcast", "reduce"),
    "Open MPI's table": _open_mpi,
}
