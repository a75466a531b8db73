"""``ripieno doctor --engine``: checks an engine's slots, its versions, and the connections between its hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ripieno.doctor.machine import BAD, WARNING, Finding, check_workers, encrypted
from ripieno.errors import EngineError, RipienoError, TooFewSlots
from ripieno.launch.encryption import TLS_VARIABLE, wants_tls
from ripieno.launch.engine import survey
from ripieno.launch.engine.contract import Engine
from ripieno.launch.engine.survey import Site, UnreachedHost
from ripieno.launch.engines import check_installed, engine_of

# Processes can exchange values only if these versions are equal. Other differences only affect programs.
MUST_BE_EQUAL = ("Python", "ripieno")
START_ADVICE = "start it, or pass its address: --address"
PERSIST_ADVICE = "start a cluster that stays, for example with ray start --head, or pass its address: --address"
LOG_ADVICE = "ripieno must be installed where tasks run, and they must reach this process; their logs may say more"
# Maximum number of examples per kind of finding.
NAMED_COUNT = 5


def examine(name: str, address: str | None = None) -> list[Finding]:
    """Start tasks, then ranks, in the named engine, at `address` or at the address in its settings."""
    try:
        with _connection(name, address) as options:
            return _examined(name, options)
    except RipienoError as error:
        return [Finding(name, str(error), BAD, START_ADVICE)]


def _examined(name: str, options: Mapping[str, Any]) -> list[Finding]:
    def engine() -> Engine:
        # An engine may close its connection when a job ends, so each job gets its own engine.
        return engine_of(name, options)[0]

    here = engine()
    findings = [_address(name, here), _token(here)]
    sites, unreached, slots = _surveyed(engine, here.slots())
    findings += slots
    if sites:
        findings += [*_versions(sites), _reach(sites, unreached), _links(sites)]
    if len(sites) > 1 and not unreached:
        findings.append(check_workers(f"2 workers in {name}", LOG_ADVICE, engine=engine()))
    return findings


def _address(name: str, engine: Engine) -> Finding:
    found = f"its tasks reach this process at {engine.host()}"
    if not engine.is_own:
        return Finding(name, found)
    own = "no cluster was found: the results below belong to a temporary one on this machine"
    return Finding(name, f"{own}; {found}", WARNING, PERSIST_ADVICE)


@contextmanager
def _connection(name: str, address: str | None) -> Iterator[dict[str, Any]]:
    """Yield the options with an engine's location, and close new connections at the end."""
    check_installed(name)
    if name == "spark":
        with _spark_session(address) as session:
            yield {"spark": session}
    elif name == "dask" and address is not None:
        from ripieno.launch.engines.dask.engine import connected

        with connected(address) as client:
            yield {"client": client}
    else:
        yield {} if address is None else {"address": address}


# Maximum time for the start of an executor of Spark.
EXECUTORS_S = 30.0


@contextmanager
def _spark_session(master: str | None) -> Iterator[Any]:
    """Return the active session, or a new one that ends with the context."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from ripieno.launch.engines.spark.stage import await_slots

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    # The first job waits until executors have registered.
    builder = SparkSession.builder.appName("ripieno doctor")
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    for setting in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(setting, "false")
    try:
        session = (builder if master is None else builder.master(master)).getOrCreate()
    except (PySparkException, Py4JJavaError) as error:
        where = "" if master is None else f" at {master}"
        raise EngineError(f"Spark{where} cannot be started: {error}".partition("\n")[0]) from error
    try:
        session.sparkContext.setLogLevel("ERROR")
        # Spark itself waits for its first executor without a time limit.
        await_slots(session.sparkContext, 1, EXECUTORS_S)
        session.sparkContext.parallelize([0], 1).count()
        yield session
    finally:
        session.stop()


def _surveyed(engine: Callable[[], Engine], total: int) -> tuple[list[Site], list[UnreachedHost], list[Finding]]:
    """Return the sites of tasks in all free slots, failed connections, and findings about the slots."""
    free = total
    slots = Finding("slots", f"{total} in all, all of them free")
    try:
        try:
            sites, unreached = survey.take(engine(), max(1, total), tls=wants_tls(os.environ))
        except TooFewSlots as error:
            free = error.free
            slots = Finding("slots", f"{total} in all, {free} free", WARNING if free else BAD, error.advice)
            if not free:
                return [], [], [slots]
            sites, unreached = survey.take(engine(), free, tls=wants_tls(os.environ))
    except RipienoError as error:
        return [], [], [slots, Finding("tasks", f"{free} were started: {error}", BAD, LOG_ADVICE)]
    return sites, unreached, [slots]


def _token(engine: Engine) -> Finding:
    by = engine.handover()
    flaws = [name for name, has in (("authenticated", by.is_authentic), ("encrypted", by.is_encrypted)) if not has]
    if not flaws:
        return Finding("token", f"is sent {by.transport}, authenticated and encrypted")
    return Finding("token", f"is sent {by.transport}, not {' and not '.join(flaws)}", WARNING, by.advice)


def _versions(sites: list[Site]) -> Iterator[Finding]:
    """Yield a finding for each versioned package."""
    for name, here in survey.versions().items():
        others = [site for site in sites if not _same(name, site.versions[name], here)]
        found = f"{here} here"
        if not others:
            yield Finding(name, f"{found} and in all {len(sites)} tasks")
            continue
        named = ", ".join(f"{site.versions[name]} in {site.python} on {site.host}" for site in others[:NAMED_COUNT])
        outcome = BAD if name in MUST_BE_EQUAL else WARNING
        yield Finding(
            name, f"{found}, but {named}{_more(others)}", outcome, f"install {name} {here} there, or the other here"
        )


def _same(name: str, first: str, second: str) -> bool:
    # The patch level of Python does not matter.
    return first.split(".")[:2] == second.split(".")[:2] if name == "Python" else first == second


def _reach(sites: list[Site], unreached: list[UnreachedHost]) -> Finding:
    addresses = sorted({site.address for site in sites})
    if not unreached:
        return Finding("network", f"tasks at {', '.join(addresses[:NAMED_COUNT])}{_more(addresses)} reach each other")
    named = "; ".join(f"{each.source} cannot reach {each.target}: {each.cause}" for each in unreached[:NAMED_COUNT])
    advice = "allow connections between these hosts on any port, or choose reachable addresses: bind_host"
    return Finding("network", named + _more(unreached), BAD, advice)


def _links(sites: list[Site]) -> Finding:
    if {site.host for site in sites} == {socket.gethostname()}:
        return Finding("links", "all tasks are on this host: their traffic does not leave it")
    if wants_tls(os.environ) is not False:
        return Finding("links", f"network traffic of ranks is encrypted, by {encrypted()}")
    found = "ranks authenticate each other by the token; their network traffic is not encrypted"
    advice = f"leave {TLS_VARIABLE}=0 out, or use a trusted network"
    return Finding("links", found, WARNING, advice)


def _more(rows: list[Any]) -> str:
    return f" and {len(rows) - NAMED_COUNT} more" if len(rows) > NAMED_COUNT else ""
