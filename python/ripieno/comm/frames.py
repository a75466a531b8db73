"""Aggregate the keyed frames of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ripieno.comm.gathers import Gathers
from ripieno.comm.keyed_data import KeyedData
from ripieno.comm.reductions import Reductions
from ripieno.errors import CollectiveMismatch
from ripieno.keyed.regroup import regroup

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.keyed import KeyValues
    from ripieno.keyed.aggregation import Aggregation
    from ripieno.keyed.emitter import Emitter
    from ripieno.keyed.frame import KeyedFrame


class FrameCalls(KeyedData, Gathers, Reductions):
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
        call = f"keys {frame.keys}, {dict(aggregations)}, everywhere={everywhere}"
        summary = self._allgather_values("aggregate", (call, len(frame), frame.to_arrow().schema))
        # A rank without rows adopts the columns of the first rank that has rows.
        first = next((rank for rank, each in enumerate(summary) if each[1]), 0)
        for rank, (other_call, row_count, schema) in enumerate(summary):
            if other_call != summary[first][0] or (row_count and not schema.equals(summary[first][2])):
                described = [
                    f"rank {each}: {summary[each][0]} of {_columns(summary[each][2])}" for each in (first, rank)
                ]
                raise CollectiveMismatch(f"aggregate: {'; '.join(described)}: expected the same on all ranks")
        own = frame if len(frame) else frame.of_columns(summary[first][2])
        aggregation = own.aggregation(aggregations, threads=self.threads, world_size=self.world_size)
        table = aggregated(self, aggregation, everywhere=everywhere)
        return own.of_table(table, frame.keys)


def aggregated(comm: FrameCalls, aggregation: Aggregation, *, everywhere: bool = False) -> pa.Table:
    """Return the result of an aggregation over all ranks.

    Parameters
    ----------
    comm : Communicator
        Every rank calls this function, with the same aggregations.
    aggregation : Aggregation
        The rows of this rank. It is empty afterwards.
    everywhere : bool
        Whether every rank gets all keys. By default each key goes to its owner only.
    """
    from ripieno.keyed.aggregation import Facts, combined_locally

    aggregation.adopt(Facts.joined(comm._allgather_values("aggregate", aggregation.facts)))

    def combine_at_owner(emitter: Emitter, op: Any) -> KeyValues:
        combined: KeyValues = regroup(comm, emitter)[0]
        return combined

    def combine_everywhere(emitter: Emitter, op: Any) -> KeyValues:
        return comm.allreduce(combined_locally(emitter), op=op)

    return aggregation.result(combine_everywhere if everywhere else combine_at_owner, combine_at_owner)


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
