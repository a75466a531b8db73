"""Export of flight records as OpenTelemetry spans. Requires ``pip install 'ripieno[opentelemetry]'``.

Records use the monotonic clock. Spans use the wall clock, converted by the current difference of both clocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ripieno._extras import needs

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: Attributes of spans, named ``ripieno.NAME``.
ATTRIBUTES = (
    *("number", "communicator", "sequence", "algorithm", "dtype", "op", "bytes", "peer_count"),
    *("waiting_s", "waited_for", "outcome"),
)


def export(
    records: Sequence[Mapping[str, Any]], *, rank: int, provider: TracerProvider | None = None, since: int = 0
) -> int:
    """Create a span for each collective with recorded times.

    Parameters
    ----------
    records : sequence of dict
        Records from `Communicator.flight`, or the "records" of a rank's file.
    rank : int
        The rank of the records.
    provider : TracerProvider, optional
        The provider; by default the provider that the program has set up.
    since : int
        Skip records with smaller numbers, which have already been exported.

    Returns
    -------
    int
        The number after the last record, for the next call.

    Raises
    ------
    MissingExtra
        If OpenTelemetry is not installed.
    """
    with needs("opentelemetry"):
        from opentelemetry import trace
    tracer = trace.get_tracer("ripieno", tracer_provider=provider)
    to_wall_s = time.time() - time.monotonic()
    for record in records:
        if record["number"] < since or record["start_s"] is None or record["outcome"] == "in flight":
            continue
        start, end = (int(1e9 * (record[name] + to_wall_s)) for name in ("start_s", "end_s"))
        text = {f"ripieno.{name}": record[name] for name in ATTRIBUTES if record[name] is not None}
        span = tracer.start_span(record["collective"], start_time=start, attributes={"ripieno.rank": rank, **text})
        if record["outcome"] != "done":
            span.set_status(trace.Status(trace.StatusCode.ERROR, record["outcome"]))
        span.end(end_time=end)
    return max((record["number"] + 1 for record in records), default=since)
