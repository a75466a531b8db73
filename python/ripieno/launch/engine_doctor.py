"""``ripieno doctor --engine``: has an engine slots, does it have what ranks need, and do all reach each other there."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from ripieno.errors import RipienoError, TooFewSlots
from ripieno.launch import survey
from ripieno.launch.doctor import BAD, WARNING, Finding, work
from ripieno.launch.engine import Engine
from ripieno.launch.engines import engine_of
from ripieno.launch.survey import Place, Unreached

# What makes values travel or not; other differences only change what programs find.
MUST_BE_EQUAL = ("Python", "ripieno")
# Of each kind of finding so many are named.
NAMED_COUNT = 5


def examine(name: str, options: Mapping[str, Any]) -> list[Finding]:
    """Start tasks, then ranks, in the engine of that name, made with `options` of `ripieno.launch.launch`."""
    try:
        engine, _ = engine_of(name, options)
        host = engine.host()
    except RipienoError as error:
        return [Finding(name, str(error), BAD, "start it, or say where it is: --address")]
    findings = [Finding(name, f"reached; its tasks reach this process at {host}"), _token(engine)]
    places, unreached, found = _surveyed(engine)
    findings += found
    if places:
        findings += [*_versions(places), _reach(places, unreached), _links(places)]
    if len(places) > 1 and not unreached:
        advice = "the task's own log, where the engine keeps it, may tell more"
        findings.append(work(f"2 workers in {name}", advice, engine=name, **options))
    return findings


def _surveyed(engine: Engine) -> tuple[list[Place], list[Unreached], list[Finding]]:
    """What tasks in all free slots say, and what there is to say of the slots."""
    total = free = engine.slots()
    slots = Finding("slots", f"{total} in all, all of them free")
    try:
        try:
            places, unreached = survey.take(engine, total)
        except TooFewSlots as error:
            free = error.free
            slots = Finding("slots", f"{total} in all, {free} free", WARNING if free else BAD, error.advice)
            if not free:
                return [], [], [slots]
            places, unreached = survey.take(engine, free)
    except RipienoError as error:
        advice = "what the engine's own logs say of these tasks tells more"
        return [], [], [slots, Finding("tasks", f"{free} were started: {error}", BAD, advice)]
    return places, unreached, [slots]


def _token(engine: Engine) -> Finding:
    by = engine.handover()
    flaws = [what for what, has in (("authenticated", by.is_authentic), ("encrypted", by.is_encrypted)) if not has]
    if not flaws:
        return Finding("token", f"travels {by.way}, authenticated and encrypted")
    return Finding("token", f"travels {by.way}, not {' and not '.join(flaws)}", WARNING, by.advice)


def _versions(places: list[Place]) -> Iterator[Finding]:
    """One for each thing that has a version."""
    for what, here in survey.versions().items():
        others = [place for place in places if not _same(what, place.versions[what], here)]
        found = f"{here} here"
        if not others:
            yield Finding(what, f"{found} and in all {len(places)} tasks")
            continue
        named = ", ".join(f"{place.versions[what]} in {place.python} on {place.host}" for place in others[:NAMED_COUNT])
        outcome = BAD if what in MUST_BE_EQUAL else WARNING
        yield Finding(
            what, f"{found}, but {named}{_more(others)}", outcome, f"install {what} {here} there, or the other here"
        )


def _same(what: str, one: str, other: str) -> bool:
    # Of Python the last number does not matter.
    return one.split(".")[:2] == other.split(".")[:2] if what == "Python" else one == other


def _reach(places: list[Place], unreached: list[Unreached]) -> Finding:
    addresses = sorted({place.address for place in places})
    if not unreached:
        return Finding("network", f"tasks at {', '.join(addresses[:NAMED_COUNT])}{_more(addresses)} reach each other")
    named = "; ".join(f"{each.source} cannot reach {each.target}: {each.cause}" for each in unreached[:NAMED_COUNT])
    advice = "let these hosts connect to each other on any port, or give ranks addresses where they can: bind_host"
    return Finding("network", named + _more(unreached), BAD, advice)


def _links(places: list[Place]) -> Finding:
    if {place.host for place in places} == {socket.gethostname()}:
        return Finding("links", "all tasks are on this host: what ranks send does not leave it")
    found = "ranks prove to each other that they know the token; what they send over the network is not encrypted"
    advice = "use a network that nobody else listens to, or one that encrypts (WireGuard, IPsec)"
    return Finding("links", found, WARNING, advice)


def _more(rows: list[Any]) -> str:
    return f" and {len(rows) - NAMED_COUNT} more" if len(rows) > NAMED_COUNT else ""
