"""``ripieno doctor --engine`` and its survey, with a stand-in for an engine."""

from __future__ import annotations

import json
import socket

import pytest
from click.testing import CliRunner
from ripieno.cli.run import doctor_command
from ripieno.doctor import engine as engine_doctor
from ripieno.doctor.machine import BAD, PASSED, WARNING
from ripieno.errors import EngineError, TooFewSlots
from ripieno.launch import engines
from ripieno.launch.engine import survey
from ripieno.launch.engine.contract import Handover
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engine.survey import Site, UnreachedHost
from stand_in_engine import StandIn

HERE = survey.versions()


class Small(StandIn):
    """An engine with three slots, one of them occupied."""

    def slots(self) -> int:
        return 3

    def start(self, workers: int, invitation: Invitation):
        if workers > 2:
            raise TooFewSlots(self.NAME, workers, 2, 3, "wait")
        return super().start(workers, invitation)


class Absent(StandIn):
    """An engine that cannot be reached."""

    def __init__(self) -> None:
        raise EngineError("no scheduler")


class Unreachable(StandIn):
    """An engine with tasks that report to an address without a listener."""

    def slots(self) -> int:
        return 2

    def start(self, workers: int, invitation: Invitation):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        run = super().start(workers, Invitation(invitation.host, port, invitation.token, workers, 1, is_survey=True))
        run.processes[0].wait()
        run.failed(0, "the task ended")
        return run


@pytest.fixture
def as_dask(monkeypatch):
    """Replace an engine by a class."""

    def register(kind: type) -> None:
        monkeypatch.setitem(engines._CLASSES, "dask", (f"{kind.__module__}:{kind.__name__}", "ripieno"))

    return register


def site(rank: int, *, host: str = "a", **versions: str) -> Site:
    return Site(rank, host, f"10.0.0.{rank}", 4000, "/usr/bin/python3", HERE | versions)


def found(findings) -> dict:
    return {finding.name: finding for finding in findings}


def test_tasks_report_their_hosts_and_reach_each_other():
    sites, unreached = survey.take(StandIn(), 3)

    assert [site.rank for site in sites] == [0, 1, 2]
    assert {site.host for site in sites} == {socket.gethostname()}
    assert all(site.versions == HERE for site in sites)
    assert unreached == []


def test_a_task_that_cannot_be_reached_is_reported_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    invitation = Invitation("127.0.0.1", port, bytes(32), 1, 1, is_survey=True)
    assert survey._try(Site(1, "b", "127.0.0.1", port, "", {}), invitation) == "Connection refused"


def test_the_command_reports_the_engine_and_a_run_of_two_workers(as_dask):
    as_dask(Small)

    result = CliRunner().invoke(doctor_command, ["--engine", "dask", "--json"])

    findings = {each["name"]: each for each in json.loads(result.output)}
    assert result.exit_code == 0, result.output
    assert findings["slots"] == {"name": "slots", "found": "3 in all, 2 free", "outcome": WARNING, "advice": "wait"}
    assert findings["Python"]["found"] == f"{HERE['Python']} here and in all 2 tasks"
    assert findings["network"]["found"] == "tasks at 127.0.0.1 reach each other"
    assert "connected in" in findings["2 workers in dask"]["found"]


def test_tasks_that_cannot_report_are_a_finding(as_dask):
    as_dask(Unreachable)

    findings = found(engine_doctor.examine("dask"))

    assert findings["tasks"].outcome == BAD
    assert "2 were started" in findings["tasks"].found and "the task ended" in findings["tasks"].found


def test_an_engine_that_does_not_exist_is_a_finding(as_dask):
    as_dask(Absent)

    (finding,) = engine_doctor.examine("dask")

    assert (finding.outcome, finding.found) == (BAD, "no scheduler")


def test_different_versions_are_named_as_warnings_or_errors():
    major, minor, last = HERE["Python"].split(".")
    sites = [
        site(0, Python=f"{major}.{minor}.{int(last) + 1}"),
        site(1, numpy="1.0", host="b"),
        site(2, ripieno="missing"),
    ]

    findings = found(engine_doctor._versions(sites))

    assert findings["Python"].outcome == findings["pyarrow"].outcome == PASSED
    assert findings["numpy"].outcome == WARNING
    assert f"{HERE['numpy']} here, but 1.0 in /usr/bin/python3 on b" in findings["numpy"].found
    assert findings["ripieno"].outcome == BAD and "missing" in findings["ripieno"].found


def test_pairs_that_do_not_reach_each_other_are_named_by_address():
    sites = [site(rank) for rank in range(8)]
    unreached = [UnreachedHost(sites[0], target, "timed out") for target in sites[1:]]

    finding = engine_doctor._reach(sites, unreached)

    assert finding.outcome == BAD
    assert "rank 0 at 10.0.0.0 (a) cannot reach rank 1 at 10.0.0.1 (a): timed out" in finding.found
    assert finding.found.endswith("and 2 more")


@pytest.mark.parametrize(
    ("authentic", "encrypted", "outcome", "words"),
    [
        (True, True, PASSED, "authenticated and encrypted"),
        (True, False, WARNING, "not encrypted"),
        (False, False, WARNING, "not authenticated and not encrypted"),
    ],
)
def test_the_report_describes_the_transfer_of_the_token(monkeypatch, authentic, encrypted, outcome, words):
    monkeypatch.setattr(StandIn, "handover", lambda self: Handover("by pipes", authentic, encrypted, "do better"))

    finding = engine_doctor._token(StandIn())

    assert (finding.outcome, finding.found) == (outcome, f"is sent by pipes, {words}")


def test_links_between_hosts_are_reported_as_encrypted_or_not(monkeypatch):
    assert "TLS13_AES_128_GCM_SHA256" in engine_doctor._links([site(0), site(1)]).found
    monkeypatch.setenv("RIPIENO_TLS", "0")
    assert engine_doctor._links([site(0), site(1)]).outcome == WARNING
    assert engine_doctor._links([site(0, host=socket.gethostname())]).outcome == PASSED


@pytest.mark.parametrize("engine", ["local", "slurm", "mpirun"])
def test_an_address_is_refused_for_other_engines(engine):
    result = CliRunner().invoke(doctor_command, ["--engine", engine, "--address", "tcp://somewhere"])

    assert result.exit_code == 2 and "--engine" in result.output
