"""Provide the run of `ripieno bench`: parse the request, start or join ranks, and collect the results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import ripieno._native as _native
from ripieno.bench import baselines, choice
from ripieno.bench import cases as case_options
from ripieno.bench.baselines import Deployment
from ripieno.bench.cases import BenchCase
from ripieno.bench.comparison import WARM_UP, compare, figure_of
from ripieno.bench.figures import Measurements
from ripieno.bench.limits import MachineLimit, PeerLimit, UnknownLimit, WireLimit
from ripieno.bench.rank import NativeWorld, PythonWorld, times, world_of
from ripieno.bench.results import ChoiceResults, CollectiveFigures
from ripieno.errors import InputError
from ripieno.lab.cluster_spec import bits_per_s
from ripieno.launch.script.environment import init

#: Default numbers of ranks to start.
DEFAULT_WORLD_SIZES = (2,)


@dataclass(frozen=True)
class BenchRequest:
    """The checked request of the command line. Without given world sizes, it has none."""

    collectives: list[str]
    world_sizes: list[int] | None
    sizes: list[int]
    algorithm: str | None
    links: str
    against: list[str]
    repetitions: int
    from_python: bool
    gloo_python: str | None
    bits_per_s: float | None
    budget_s: float
    timeout_s: float
    trials_s: float = 0.0

    @classmethod
    def parse(
        cls, *, collectives: str, ranks: str | None, sizes: str, algorithm: str | None, against: str | None,
        rate: str | None, links: str, repetitions: int, from_python: bool, gloo_python: str | None, budget_s: float,
        timeout_s: float, trials_s: float = 0.0,
    ) -> BenchRequest:  # fmt: skip
        """Parse the options of the command line.

        Raises
        ------
        InputError
            If an option is invalid.
        """
        names = case_options.collectives_of(collectives)
        if algorithm not in (None, "all"):
            for name in names:
                # An order of the ranks may follow the name, after an @.
                if algorithm.partition("@")[0] not in _native.algorithms(name):
                    known = ", ".join(_native.algorithms(name))
                    raise InputError(f"algorithm {algorithm!r}: expected all, or for {name} one of {known}")
        peers = [name.strip() for name in against.split(",")] if against else []
        for peer in peers:
            if peer not in baselines.PEERS:
                raise InputError(f"peer {peer!r}: expected some of {', '.join(baselines.PEERS)}")
        return cls(
            names, None if ranks is None else case_options.world_sizes_of(ranks), case_options.sizes_of(sizes),
            algorithm, links, peers, repetitions, from_python, gloo_python,
            None if rate is None else bits_per_s("rate", rate), budget_s, timeout_s, trials_s,
        )  # fmt: skip

    def cases(self) -> list[BenchCase]:
        """Return a case for each collective, size and requested algorithm; "all" includes the default choice."""
        return [
            case
            for collective in self.collectives
            for algorithm in ([None, *_native.algorithms(collective)] if self.algorithm == "all" else [self.algorithm])
            for case in case_options.cases_of([collective], self.sizes, algorithm)
        ]


def started(request: BenchRequest, *, only_choice: bool) -> CollectiveFigures | ChoiceResults:
    """Start ranks on this machine, for each requested world size.

    Raises
    ------
    ProgramFailed
        If our ranks failed.
    InputError
        If a rate is given, or no requested world supports the algorithm.
    """
    if request.bits_per_s is not None:
        raise InputError("--rate: ranks of one host have no network link; use it under a launcher on several hosts")
    for world_size in request.world_sizes or DEFAULT_WORLD_SIZES:
        case_options.check_sizes(request.collectives, request.sizes, world_size)
    return _started_choice(request) if only_choice else _started(request)


def _started(request: BenchRequest) -> CollectiveFigures:
    found = CollectiveFigures(Measurements("bench"))
    through = "python" if request.from_python else "native"
    for world_size in request.world_sizes or DEFAULT_WORLD_SIZES:
        place = Deployment(world_size)
        ours = baselines.ripieno(place, through=through, links=request.links)
        peers, remarks = baselines.peers(
            request.against, place, python=request.from_python, gloo_python=request.gloo_python
        )
        for remark in remarks:
            found.report.remark(remark)
        limit = MachineLimit(world_size)
        found.failed += compare(
            [ours, *peers],
            request.cases(),
            limit,
            found.report,
            title=_title(world_size, through),
            repetitions=request.repetitions,
            budget_s=request.budget_s,
            timeout_s=request.timeout_s,
        )
        if limit.placement is not None:
            found.report.remark(limit.placement)
    return _with_figures(found)


def _started_choice(request: BenchRequest) -> ChoiceResults:
    cells: list[choice.Cell] = []
    for world_size in request.world_sizes or DEFAULT_WORLD_SIZES:
        words, environment = baselines.module("ripieno.bench.choice")
        words += [request.links, ",".join(request.collectives), ",".join(str(size) for size in request.sizes)]
        words += [str(request.trials_s)]
        output = Deployment(world_size).ranks(words, request.timeout_s, environment)
        cells += [choice.Cell(**json.loads(line)) for line in output.splitlines()]
    return ChoiceResults(cells)


def joined(request: BenchRequest, *, only_choice: bool) -> CollectiveFigures | ChoiceResults | None:
    """Join the ranks of a launcher. Rank 0 returns the results.

    Raises
    ------
    InputError
        If peers or numbers of ranks are requested under a launcher, or the launcher's world does not support
        the algorithm.
    """
    if request.world_sizes is not None:
        raise InputError("--ranks: the launcher has started them; without one, bench starts them itself")
    if request.against:
        raise InputError("--against: under a launcher there are no peers; without one, bench starts them itself")
    if only_choice:
        native = NativeWorld(init(links=request.links, threads=1))
        cells = list(choice.cells(native, request.collectives, request.sizes, request.trials_s))
        return ChoiceResults(cells) if native.rank == 0 else None
    through = "python" if request.from_python else "native"
    world = world_of(through, request.links)
    limit = _limit_under_launcher(world, request)
    cases = request.cases()
    seconds: dict[BenchCase, list[float]] = {}
    report, title = Measurements("bench"), _title(world.world_size, through)
    for _ in range(request.repetitions):
        if world.rank == 0:
            limit.measure(cases, request.budget_s)
        for case in (WARM_UP, *cases):
            text = times(world, case.word, request.budget_s)
            if isinstance(text, str):
                report.remark(f"{title(case)} is left out: {text}")
            else:
                seconds.setdefault(case, []).append(statistics.median(text))
    if world.rank != 0:
        return None
    report.figures += [figure_of(case, seconds[case], {}, limit, title(case)) for case in cases if case in seconds]
    return _with_figures(CollectiveFigures(report))


def _with_figures(found: CollectiveFigures) -> CollectiveFigures:
    # Without figures, the requested algorithm supports none of these numbers of ranks.
    if not found.report.figures:
        raise InputError("; ".join(found.report.remarks))
    return found


def _limit_under_launcher(world: PythonWorld, request: BenchRequest) -> PeerLimit:
    if request.bits_per_s is not None:
        return WireLimit(world.world_size, request.bits_per_s)
    return MachineLimit(world.world_size) if len(set(world.comm.hosts)) == 1 else UnknownLimit()


def _title(world_size: int, through: str) -> Callable[[BenchCase], str]:
    return lambda case: f"{case.name}, {world_size} ranks, {through}"
