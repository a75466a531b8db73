"""Flight records as spans of OpenTelemetry. Needs ``pip install 'ripieno[opentelemetry]'``.

Records have times of the monotonic clock; spans those of the wall clock, by what both say now.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ripieno._extras import needs

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: What spans tell besides their times, as ``ripieno.NAME``.
ATTRIBUTES = (
    *("number", "communicator", "sequence", "algorithm", "dtype", "op", "bytes", "peer_count"),
    *("waiting_s", "waited_for", "outcome"),
)


def export(
    records: Sequence[Mapping[str, Any]], *, rank: int, provider: TracerProvider | None = None, since: int = 0
) -> int:
    """Make a span of each collective that has times.

    Parameters
    ----------
    records : sequence of dict
        As `Communicator.flight` gives them, or the "records" of a file that a rank has left.
    rank : int
        Whose they are.
    provider : TracerProvider, optional
        By default the one that the program has set up.
    since : int
        Records with smaller numbers are left out: those that have been exported already.

    Returns
    -------
    int
        The number after that of the last record, to go on from.

    Raises
    ------
    MissingExtra
        OpenTelemetry is not installed.
    """
    with needs("opentelemetry"):
        from opentelemetry import trace
    tracer = trace.get_tracer("ripieno", tracer_provider=provider)
    to_wall_s = time.time() - time.monotonic()
    for record in records:
        if record["number"] < since or record["start_s"] is None or record["outcome"] == "in flight":
            continue
        start, end = (int(1e9 * (record[name] + to_wall_s)) for name in ("start_s", "end_s"))
        told = {f"ripieno.{name}": record[name] for name in ATTRIBUTES if record[name] is not None}
        span = tracer.start_span(record["collective"], start_time=start, attributes={"ripieno.rank": rank, **told})
        if record["outcome"] != "done":
            span.set_status(trace.Status(trace.StatusCode.ERROR, record["outcome"]))
        span.end(end_time=end)
    return max((record["number"] + 1 for record in records), default=since)
