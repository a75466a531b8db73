"""Provide the simulated times of broadcast strategies, as the table of docs/broadcast.md.

`python -m ripieno.simulation.strategy_table` prints the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from ripieno.simulation.cluster import Cluster
from ripieno.simulation.distribution import distribute

STRATEGIES = ("chain", "splitstream", "csb", "bittorrent")
SIZE_BYTES, RATE_BITS_PER_S, ALPHA_S = 64 << 20, 100e6, 50e-6
HOSTS = (8, 32, 64)
#: Ranks killed half-way, of 32 receivers.
KILLED_OF, KILLED = 32, (5, 16, 27)


def _seconds(strategy: str, hosts: int, dead: Sequence[tuple[int, float]] = ()) -> float:
    """Return the seconds until the last live receiver has the value."""
    cluster = Cluster(nodes=hosts + 1, rate_bits_per_s=RATE_BITS_PER_S, alpha_s=ALPHA_S, dead=dead)
    ends = distribute(cluster, nbytes=SIZE_BYTES, algorithm=strategy).ends
    return max(end.at_s for end in ends if end.kind == "done" and end.at_s is not None)


def table() -> str:
    """Return the table: times over the time of the bytes alone, and of a broadcast with killed over undisturbed."""
    lines = ["| | 8 hosts | 32 hosts | 64 hosts | 3 of 32 killed |", "|---|---|---|---|---|"]
    for strategy in STRATEGIES:
        seconds = {hosts: _seconds(strategy, hosts) for hosts in HOSTS}
        whole_s = seconds[KILLED_OF]
        killed_s = _seconds(strategy, KILLED_OF, [(rank, whole_s / 2) for rank in KILLED])
        values = [each * RATE_BITS_PER_S / 8 / SIZE_BYTES for each in seconds.values()] + [killed_s / whole_s]
        lines.append(f"| `{strategy}` | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
