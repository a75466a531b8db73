"""Aggregate the keyed frames of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ripieno.comm.gathers import Gathers
from ripieno.comm.keyed_data import KeyedData
from ripieno.comm.reductions import Reductions
from ripieno.errors import CollectiveMismatch

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.keyed import KeyValues
    from ripieno.keyed.aggregation import Aggregation
    from ripieno.keyed.frame import KeyedFrame


class Frames(KeyedData, Gathers, Reductions):
    """The call of a communicator that aggregates frames."""

    def aggregate(
        self, frame: KeyedFrame, aggregations: Mapping[str, str | tuple[str, str]], *, everywhere: bool = False
    ) -> KeyedFrame:
        """Return one row per key of all ranks' frames, at the owner of the key or on every rank. Every rank calls it.

        Parameters
        ----------
        frame : KeyedFrame
            Columns of the same names and types on all ranks that have rows.
        aggregations : dict of str to "count" or (str, str)
            As for `KeyedFrame.aggregated`; the same on all ranks.
        everywhere : bool
            Whether every rank gets all keys. By default each key goes to its owner only.

        Returns
        -------
        KeyedFrame
            The result. Sums of floats have the same bits in every run.

        Raises
        ------
        CollectiveMismatch
            On every rank: ranks pass frames with different columns, or different aggregations.

        Examples
        --------
        >>> import pyarrow as pa, ripieno as rp
        >>> def program(comm):
        ...     trips = pa.table({"city": ["Bonn", "Köln"], "km": [1.0 + comm.rank, 4.0]})
        ...     found = comm.aggregate(rp.KeyedFrame(trips, "city"), {"km": ("km", "mean")}, everywhere=True)
        ...     return found.to_arrow().to_pydict()
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)[0]
        {'city': ['Bonn', 'Köln'], 'km': [1.5, 4.0]}
        """
        has_nulls = any(frame.to_arrow()[name].null_count for name in frame.keys)
        call = f"keys {frame.keys}, {dict(aggregations)}, everywhere={everywhere}"
        summary = self._allgather_values("aggregate", (call, len(frame), frame.to_arrow().schema, has_nulls))
        # A rank without rows adopts the columns of the first rank that has rows.
        first = next((rank for rank, each in enumerate(summary) if each[1]), 0)
        for rank, (other_call, row_count, schema, _) in enumerate(summary):
            if other_call != summary[first][0] or (row_count and not schema.equals(summary[first][2])):
                described = [
                    f"rank {each}: {summary[each][0]} of {_columns(summary[each][2])}" for each in (first, rank)
                ]
                raise CollectiveMismatch(f"aggregate: {'; '.join(described)}: expected the same on all ranks")
        own = frame if len(frame) else frame.of_columns(summary[first][2])
        aggregation = own.aggregation(aggregations, threads=self.threads)
        has_null_keys = any(each[3] for each in summary)
        table = aggregated(self, aggregation, has_null_keys=has_null_keys, everywhere=everywhere)
        return own.of_table(table, frame.keys)


def aggregated(comm: Frames, aggregation: Aggregation, *, has_null_keys: bool, everywhere: bool = False) -> pa.Table:
    """Return the result of an aggregation over all ranks.

    Parameters
    ----------
    comm : Communicator
        Every rank calls this function, with the same aggregations.
    aggregation : Aggregation
        The rows of this rank.
    has_null_keys : bool
        Whether the keys of any rank have nulls.
    everywhere : bool
        Whether every rank gets all keys. By default each key goes to its owner only.
    """
    if has_null_keys:
        aggregation.use_composite_keys()

    def combine_at_owner(rows: KeyValues, op: Any) -> KeyValues:
        combined: KeyValues = comm.regroup(rows, combine=op)
        return combined

    return aggregation.result(comm.allreduce if everywhere else combine_at_owner, combine_at_owner)


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
