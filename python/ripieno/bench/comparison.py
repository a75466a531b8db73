"""Provide alternating runs of all implementations, so that disturbances affect all equally, and their figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from ripieno.bench.baselines import Baseline
from ripieno.bench.cases import BenchCase
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.limits import PeerLimit
from ripieno.bench.processes import TIMEOUT_S, ProgramFailed
from ripieno.bench.programs.timing import ELEMENT_BYTES
from ripieno.units import size_text

#: First case, which does not count: until ranks have run for a while, some may share a core. No requested barrier has
#: this size, so no requested case reuses these cold calls.
WARM_UP = BenchCase("barrier", 2 * ELEMENT_BYTES)

Times = dict[BenchCase, list[float]]


def compare(
    baselines: Sequence[Baseline],
    cases: Sequence[BenchCase],
    limit: PeerLimit,
    report: Measurements,
    *,
    title: Callable[[BenchCase], str],
    repetitions: int,
    budget_s: float,
    timeout_s: float = TIMEOUT_S,
    targets: Callable[[BenchCase], Mapping[str, float]] = lambda case: {},
) -> list[str]:
    """Run every implementation `repetitions` times, alternating, and add figures to the report.

    The value of a repetition is the median of its calls.

    Parameters
    ----------
    baselines
        Implementations, ours first.
    cases
        Cases to measure.
    limit
        Lower bound, measured equally often.
    report
        Receives the figures, and remarks on failed peers and on algorithms that do not support the world size.
    title
        Title of a case's table.
    repetitions, budget_s, timeout_s
        Number of runs; time limit for the calls of a case in one run; time limit of a run.
    targets
        Upper limits for our results.

    Returns
    -------
    list of str
        Names of peers that failed.

    Raises
    ------
    ProgramFailed
        If our implementation failed.
    """
    times: dict[str, Times] = {each.name: {} for each in baselines}
    taking_part = list(baselines)
    for _ in range(repetitions):
        limit.measure(cases, budget_s)
        for each in list(taking_part):
            try:
                found = each.times([WARM_UP, *cases], budget_s, timeout_s)
            except ProgramFailed as failure:
                if each.ours:
                    raise
                report.remark(f"{each.name} is left out: {failure}")
                taking_part.remove(each)
                times[each.name].clear()
                continue
            for case in each.supported(cases):
                measured = found[each.word(case)]
                if isinstance(measured, str):
                    report.remark(f"{title(case)} is left out: {measured}")
                else:
                    times[each.name].setdefault(case, []).append(statistics.median(measured))
    ours, *peers = baselines
    for case in times[ours.name]:
        peer_samples = {peer.name: times[peer.name][case] for peer in peers if case in times[peer.name]}
        report.figures.append(
            figure_of(case, times[ours.name][case], peer_samples, limit, title(case), targets=targets(case))
        )
    return [each.name for each in baselines if each not in taking_part]


def figure_of(
    case: BenchCase,
    ours: Sequence[float],
    peers: Mapping[str, Sequence[float]],
    limit: PeerLimit,
    title: str,
    *,
    targets: Mapping[str, float] | None = None,
) -> Figure:
    """Return the seconds of one case as a figure."""
    return Figure(
        case=title,
        row="" if case.collective == "barrier" else size_text(case.size_bytes),
        ours=Samples(tuple(ours)),
        peers={name: Samples(tuple(seconds)) for name, seconds in peers.items()},
        limit_s=limit.seconds(case),
        limit=limit.text,
        work=0.0 if case.collective == "barrier" else case.size_bytes / 1e9,
        rate_unit="GB/s",
        targets=dict(targets or {}),
    )
