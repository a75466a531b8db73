"""The supervisor in simulated worlds: one verdict in bounded time, the right culprit, and a consistent job.

To replay failed seeds, run ``RIPIENO_WORLDS=17..18 pytest`` with this file.
"""

from __future__ import annotations

import os

import pytest
import ripieno as rp
from injected_faults import kill_once
from ripieno.launch import RankState, limits
from ripieno.launch.supervisor import ALL_DISCONNECTED, DISCONNECTED, Event, Policy, Supervisor
from supervised_worlds import World


def seeds(default: str) -> range:
    first, _, end = os.environ.get("RIPIENO_WORLDS", default).partition("..")
    return range(int(first), int(end))


#: Worlds in which a rank that was stopped briefly was blamed. None of the first 2,000 seeds finds this.
RARE_SEEDS = (267_852, 277_475, 277_954, 973_549)


def test_simulated_worlds_obey_the_laws_of_supervision():
    for seed in (*RARE_SEEDS, *seeds("0..2000")):
        try:
            World(seed).check()
        except AssertionError as error:
            error.add_note(f"in the world of seed {seed}")
            raise


def supervisor_after(*inputs, policy=None, size=4, now=0.0):
    """Return a supervisor of running ranks after some inputs at one time."""
    supervisor = Supervisor(size, policy or Policy(), now, RankState.RUNNING)
    for name, *values in inputs:
        getattr(supervisor, name)(*values)
    supervisor.tick(now)
    return supervisor


def test_states_show_the_view_of_the_launcher():
    supervisor = supervisor_after(
        ("set_stopped", 0, True), ("leaves", 1), ("fails", 2, "no heartbeat", 3), policy=Policy(on_failure="shrink")
    )
    supervisor.fails(2, "no heartbeat", 3, was_silent=True)
    assert [supervisor.state(rank) for rank in range(4)] == [
        RankState.STOPPED,
        RankState.LEAVING,
        RankState.FAILED,
        RankState.SILENT,
    ]


def test_reports_of_several_ranks_override_an_isolated_rank():
    supervisor = supervisor_after(
        ("fails", 3, "no heartbeat", 0), ("fails", 1, "no heartbeat", 3), ("fails", 2, "no heartbeat", 3)
    )
    supervisor.fails(0, "no heartbeat", 3)
    supervisor.tick(0.0)
    assert supervisor.verdict.culprit == 3


def test_the_report_of_a_failed_rank_overrides_reports_of_its_victims():
    supervisor = supervisor_after(("fails", 1, "its process ended", 0), ("fails", 2, "its process ended", 0))
    assert supervisor.verdict is None
    supervisor.tick(limits.OWN_REPORT_S - 0.1)
    supervisor.fails(3, "ValueError: mine")
    supervisor.tick(limits.OWN_REPORT_S - 0.1 + limits.OTHER_REPORTS_S)
    assert (supervisor.verdict.culprit, supervisor.verdict.witness) == (3, 3)


def test_a_rank_that_ends_while_the_others_meet_overrides_the_error_of_a_rank_that_cannot_reach_it():
    supervisor = Supervisor(4, Policy(is_script=True), 0.0)
    for rank in range(4):
        supervisor.connects(rank)
    supervisor.fails(1, "cannot reach rank 2")
    supervisor.tick(0.0)
    assert supervisor.verdict is None
    supervisor.set_time(0.01)
    supervisor.ends(2, "killed by SIGKILL", was_killed=True)
    supervisor.tick(limits.OTHER_REPORTS_S)
    assert (supervisor.verdict.culprit, supervisor.verdict.cause) == (2, "killed by SIGKILL")


def test_a_report_of_the_engine_overrides_the_order_of_closed_connections():
    supervisor = supervisor_after(("leaves", 0), ("leaves", 2), ("engine_reports", 2, "its node is lost"))
    for rank in (1, 3):
        supervisor.fails(rank, "its process ended", 0)
    supervisor.tick(0.0)
    assert supervisor.verdict.culprit == 2 and "its node is lost" in supervisor.verdict.cause


def test_a_launcher_that_loses_all_ranks_names_no_culprit():
    supervisor = supervisor_after(*(("leaves", rank) for rank in (2, 0, 1, 3)))
    supervisor.tick(limits.OWN_REPORT_S)
    assert supervisor.verdict.cause == ALL_DISCONNECTED
    supervisor = supervisor_after(("leaves", 2), ("fails", 0, "its process ended", 2), ("leaves", 3))
    for now in (limits.OWN_REPORT_S, limits.OWN_REPORT_S + limits.OTHER_REPORTS_S):
        supervisor.tick(now)
    assert (supervisor.verdict.culprit, supervisor.verdict.cause) == (2, DISCONNECTED)


def test_a_rank_that_fails_because_of_another_one_is_not_reported_as_lost():
    policy = Policy(2, is_script=True)
    supervisor = supervisor_after(("fails", 3, "ValueError: mine", 0), policy=policy)
    assert not supervisor.events
    supervisor.fails(0, "ValueError: mine")
    supervisor.tick(limits.OTHER_REPORTS_S)
    assert supervisor.verdict.culprit == 0 and not supervisor.events
    # Ranks 0 and 3 miss each other's heartbeats, and rank 1 misses heartbeats of rank 3: rank 3 was disconnected.
    supervisor = supervisor_after(
        *(("fails", by, "no heartbeat", of) for by, of in ((3, 0), (0, 3), (1, 3))), policy=policy
    )
    assert (Event.LOST, 3) in supervisor.events


def test_a_job_lists_the_states_of_its_ranks(tmp_path):
    statuses = []

    def program(comm):
        comm.barrier()
        comm.emit({"rank": comm.rank})
        kill_once(comm, tmp_path, (1,))
        comm.barrier()

    with rp.launch(workers=2, threads=1, on_failure="respawn", on_event=lambda _: statuses.extend(job.ranks)) as job:
        assert [each.state for each in job.ranks] == [RankState.READY] * 2
        with pytest.warns(RuntimeWarning, match="restarts on"):
            job.run(program)
        assert RankState.RUNNING in {each.state for each in statuses}
        *current, lost = job.ranks
        assert [(each.rank, each.state) for each in current] == [(0, RankState.READY), (1, RankState.READY)]
        assert (lost.rank, lost.state) == (1, RankState.REPLACED) and "SIGKILL" in lost.cause
    assert job.ranks == []


def test_a_job_shows_a_failed_program_until_the_next_one():
    def fails(comm):
        if comm.rank == 1:
            raise ValueError("bad row")
        comm.barrier()

    with rp.launch(workers=2, threads=1) as job:
        with pytest.raises(ValueError, match="bad row"):
            job.run(fails)
        assert [(each.state, each.cause) for each in job.ranks] == [
            (RankState.READY, ""),
            (RankState.FAILED, "ValueError: bad row"),
        ]
        job.run(lambda comm: comm.barrier())
        assert [(each.state, each.cause) for each in job.ranks] == [(RankState.READY, "")] * 2


def test_a_job_shows_that_its_ranks_have_ended():
    def leave(comm):
        if comm.rank == 1:
            os._exit(3)
        comm.barrier()

    with rp.launch(workers=2, threads=1) as job:
        with pytest.raises(rp.RankFailed, match="exited with status 3"):
            job.run(leave)
        assert [each.state for each in job.ranks] == [RankState.LOST] * 2


def test_a_job_shows_that_a_time_limit_has_ended_its_ranks():
    with rp.launch(workers=2, threads=1, call_timeout_s=0.2) as job:
        with pytest.raises(rp.CallTimeout):
            job.run(lambda comm: comm.rank and comm.recv(0))
        assert [each.state for each in job.ranks] == [RankState.LOST] * 2
