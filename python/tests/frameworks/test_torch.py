"""`torch.distributed` with Ripieno, compared with Gloo in the same processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import ripieno as rp

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

import torch_programs as programs  # noqa: E402

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def jobs():
    """Provide jobs by their number of ranks, shared by all tests."""
    kept = {}

    def job(workers):
        if workers not in kept:
            kept[workers] = rp.launch(workers=workers)
        return kept[workers]

    yield job
    for each in kept.values():
        each.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("dtype", programs.DTYPES)
def test_every_call_returns_the_result_of_gloo(jobs, workers, dtype):
    ours = jobs(workers).run(programs.every_call, "ripieno", dtype)
    gloo = jobs(workers).run(programs.every_call, "gloo", dtype)

    assert None not in ours[0].values()
    for rank in range(workers):
        described = {call: seen for call, seen in gloo[rank].items() if seen is not None}
        assert len(described) > 20
        assert {call: ours[rank][call] for call, seen in described.items() if ours[rank][call] != seen} == {}


def test_a_network_trained_by_two_ranks_is_bitwise_equal_to_gloo(jobs):
    ours = jobs(2).run(programs.trained_together, "ripieno")

    assert ours == jobs(2).run(programs.trained_together, "gloo")
    assert len(set(ours)) == 1


def test_three_ranks_have_equal_networks(jobs):
    assert len(set(jobs(3).run(programs.trained_together, "ripieno"))) == 1


def test_sharded_parameters_match_gloo_and_return_from_a_checkpoint(jobs, tmp_path):
    ours = jobs(2).run(programs.sharded, "ripieno", str(tmp_path / "ours"))
    gloo = jobs(2).run(programs.sharded, "gloo", str(tmp_path / "gloo"))

    assert ours == gloo
    assert [is_equal for _, is_equal in ours] == [True, True]


@pytest.mark.parametrize("program", [programs.optimized, programs.distributed_product], ids=lambda each: each.__name__)
def test_sharded_states_and_tensors_match_gloo(jobs, program):
    assert jobs(2).run(program, "ripieno") == jobs(2).run(program, "gloo")


def test_gradients_of_embeddings_are_added_where_ranks_have_rows(jobs):
    assert jobs(3).run(programs.embedded, "ripieno") == jobs(3).run(programs.embedded, "gloo")


def test_groups_of_members_only_and_meshes_of_two_dimensions(jobs):
    assert jobs(4).run(programs.meshed) == [[2.0, 1.0], [4.0, 1.0, 1010.0], [2.0, 5.0], [4.0, 5.0, 1010.0]]


def test_coalesced_calls_complete_and_futures_follow(jobs):
    assert jobs(3).run(programs.coalesced) == [([3.0, 6.0, 9.0, 12.0], 6.0)] * 3


def test_a_callback_waits_for_the_future_of_another_call(jobs):
    assert jobs(2).run(programs.nested) == [[16.0, 16.0]] * 2


def test_gradients_travel_as_products_of_small_matrices(jobs):
    assert jobs(2).run(programs.compressed, "ripieno") == jobs(2).run(programs.compressed, "gloo")


def test_groups_are_split_calls_are_numbered_and_barriers_have_limits(jobs):
    assert jobs(3).run(programs.split) == [(6.0, 1, 2), (3.0, 1, 1), (6.0, 1, 2)]


def test_a_monitored_barrier_names_missing_ranks_and_the_job_continues(jobs):
    failures = [
        "Rank 1 failed to pass monitoredBarrier in 100 ms",
        "Ranks 1, 2 failed to pass monitoredBarrier in 100 ms",
        "Rank 0 timed out in monitoredBarrier after 0 ms; arrived ranks: none",
    ]
    late = (
        "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: "
    )

    assert jobs(3).run(programs.missed) == [
        ([*failures, ""], 3.0),
        *(([*(late.format(rank) + failure for failure in failures), ""], 3.0) for rank in (1, 2)),
    ]


def test_calls_are_checked_without_a_second_process_group(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    with rp.launch(workers=2) as job:
        assert job.run(programs.split) == [(2.0, 1, 1)] * 2


def test_messages_and_sums_may_overtake_each_other(jobs):
    assert jobs(2).run(programs.passed) == [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]


def test_messages_are_received_by_their_tags(jobs):
    assert jobs(2).run(programs.tagged) == [[], [3.0, 1.0, 2.0]]


def test_averages_are_divided_sums(jobs):
    assert jobs(3).run(programs.averaged) == [[1.0, 1.0, 1.0]] * 3


def test_unsupported_calls_are_reported_before_anything_is_sent(jobs):
    described = jobs(2).run(programs.refused)

    assert described[0] == described[1]
    assert described[0].startswith("ReduceOp.AVG of torch.int32:")


@pytest.mark.parametrize("tag", [0, 5])
def test_messages_come_from_any_rank(jobs, tag):
    assert jobs(3).run(programs.from_any, tag)[0] == [(1, [1.0, 1.0]), (2, [2.0, 2.0])]


def test_calls_report_their_end(jobs):
    assert jobs(2).run(programs.polled)[0] == ((False, False), [1.0, 1.0], True, None, True)


def test_a_call_beyond_the_timeout_of_the_group_ends_on_every_rank():
    with rp.launch(workers=2) as job, pytest.raises((TimeoutError, rp.RankFailed), match=r"timeout of 1 s"):
        job.run(programs.late)


def test_a_dead_rank_is_named():
    with rp.launch(workers=3) as job, pytest.raises(rp.RankFailed, match="rank 1"):
        job.run(programs.killed)


def test_ranks_that_call_with_other_sizes_are_reported():
    with rp.launch(workers=2) as job, pytest.raises(rp.CollectiveMismatch, match="float32 × 3"):
        job.run(programs.mismatched)


SCRIPT = """
    import sys

    import ripieno.torch
    import torch
    import torch.distributed as dist

    dist.init_process_group("ripieno")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    # One write: the lines of ranks must not mix.
    sys.stdout.write(f"{dist.get_rank()} {dist.get_world_size()} {total.item()}\\n")
    sys.stdout.flush()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "launcher",
    [
        [sys.executable, "-m", "ripieno", "run", "-n", "2", "--no-prefix"],
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    ],
    ids=["ripieno run", "torchrun"],
)
def test_scripts_change_only_the_name_of_the_backend(tmp_path, launcher):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))

    done = subprocess.run([*launcher, str(script)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "0 2 3.0", "1 2 3.0"]


def test_no_file_of_the_store_remains(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with rp.launch(workers=2) as job:
        job.run(programs.trained_together, "ripieno")
        assert list(tmp_path.glob("ripieno-*")) == []
