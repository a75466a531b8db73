"""Messages by tags and from any source, groups created by their members, and waits for the first of several."""

from __future__ import annotations

import time

import numpy as np
import pytest
import ripieno as rp
from numpy.testing import assert_array_equal
from ripieno.errors import InputError, SerializationError
from ripieno.wire import objects


def by_tags(comm):
    if comm.rank == 0:
        for source in range(1, comm.world_size):
            # Received in a different order than sent.
            assert_array_equal(comm.recv(source, tag=2), np.arange(5) + source)
            assert comm.recv(source, tag=1) == {"from": source}
            out = np.empty(3)
            assert comm.recv(source, tag=3, out=out) is out
            assert_array_equal(out, np.full(3, source))
        return
    comm.send({"from": comm.rank}, 0, tag=1)
    comm.send(np.arange(5) + comm.rank, 0, tag=2)
    comm.send(np.full(3, float(comm.rank)), 0, tag=3)


def test_messages_are_received_by_their_tags(everywhere):
    everywhere(by_tags)


ARRAYS = {
    "short": np.arange(3.0),
    "long": np.arange(1000, dtype=np.int32),
    "of several axes": np.arange(2400.0).reshape(2, 3, 400),
    "column-major": np.asfortranarray(np.arange(600.0).reshape(20, 30)),
    "strided": np.arange(1000)[::3],
    "read-only": np.frombuffer(bytes(range(250)) * 4, np.uint8),
    "big-endian": np.arange(300, dtype=">f8"),
    "complex": np.arange(300) * (1 + 2j),
    "half": np.arange(300, dtype=np.float16),
    "of dates": np.arange(300).astype("M8[s]"),
    "of records": np.zeros(100, [("id", "i4"), ("value", "f8")]),
    "of strings": np.array(["one", "two"] * 50),
    "a matrix": np.asmatrix(np.eye(20)),
    "of no rows": np.empty((0, 500)),
    "without axes": np.array(1.5),
    "of many axes": np.zeros([1] * 30 + [40]),
}


def exchanged(comm, arrays):
    """Return the arrays that rank 0 sent, received by rank 1 without a tag, with one, and posted before."""
    if comm.rank == 0:
        for array in arrays:
            comm.send(array, 1)
            comm.send(array, 1, tag=3)
            comm.send_async(array, 1, tag=4).wait()
        return None
    found = []
    for _ in arrays:
        found.append((comm.recv(0), comm.recv(0, tag=3), comm.recv_async(0, tag=4).wait()))
    return found


def test_arrays_of_every_kind_arrive_unchanged_and_writable(world):
    _, found = world(2).run(exchanged, list(ARRAYS.values()))
    for name, received in zip(ARRAYS, found, strict=True):
        for array in received:
            sent = ARRAYS[name]
            assert type(array) is type(sent), name
            assert (array.dtype, array.shape, array.flags.writeable) == (sent.dtype, sent.shape, True), name
            assert np.array_equal(array, sent), name


def into_memory(comm):
    """Return the memory of arrays that were received with a tag, and values of other types and of later messages."""
    sent = np.arange(5000.0)
    if comm.rank == 0:
        for tag in (1, 2, 3, 4, 5):
            comm.send(tag * sent, 1, tag=tag)
        return None
    first, second, third, other = np.zeros(5000), np.zeros(5000), np.zeros(5000), np.zeros(5000, np.float32)
    # The messages 1 and 2 arrive before a matching receive.
    assert comm.recv(0, tag=3, out=first) is first
    posted = comm.recv_async(0, tag=4, out=third)
    assert comm.recv(0, tag=1, out=second) is second
    assert posted.wait() is third
    comm.recv(0, tag=5, out=other)
    with pytest.raises(InputError, match="expected"):
        comm.recv(0, tag=2, out=np.zeros(4999))
    return [bool((found == tag * sent).all()) for tag, found in ((3, first), (1, second), (4, third), (5, other))]


def test_tagged_arrays_are_received_into_the_memory_of_their_receive(world):
    assert world(2).run(into_memory)[1] == [True] * 4


@pytest.mark.parametrize("head", [b"", b"<f8     \x01", b"nothing \x08" + bytes(7), b"<f8     " + b"\xff" * 8])
def test_a_malformed_header_of_an_array_is_an_error(head):
    with pytest.raises(SerializationError, match="header of an array"):
        objects._empty_array(head, None)


def from_any_rank(comm):
    others = comm.world_size - 1
    if comm.rank == 0:
        received = [comm.recv(tag=rp.ANY_TAG, envelope=True) for _ in range(2 * others)]
        assert sorted((each.source, each.tag) for each in received) == [
            (r, t) for r in range(1, others + 1) for t in (r, 99)
        ]
        for rank in range(1, others + 1):
            assert [each.tag for each in received if each.source == rank] == [rank, 99], (
                "the order differs from the sender's"
            )
        assert all(each.value == "x" * 1000 * each.source for each in received)
        # Ranks that have finished are already in a collective.
        untagged = [comm.recv(envelope=True) for _ in range(others)]
        assert sorted(each.source for each in untagged) == list(range(1, others + 1))
        assert all(each.tag is None for each in untagged)
    else:
        comm.send("x" * 1000 * comm.rank, 0, tag=comm.rank)
        comm.send("x" * 1000 * comm.rank, 0, tag=99)
        if comm.rank > 1:
            time.sleep(0.05)
        comm.send(comm.rank, 0)
    assert comm.allreduce(1) == comm.world_size


def test_the_first_message_is_received_first(everywhere):
    everywhere(from_any_rank)


@pytest.mark.parametrize("links", ["tcp", "shared-memory"])
def test_the_first_message_is_received_first_over_every_link(links):
    with rp.launch(workers=3, links=links) as job:
        job.run(from_any_rank)


def test_a_receive_timeout_is_reported_and_loses_nothing(world):
    def program(comm):
        if comm.rank == 0:
            for kwargs in ({}, {"source": 1}, {"tag": 4}):
                with pytest.raises(TimeoutError, match=r"no message from (any rank|rank 1) within 0.01 s"):
                    comm.recv(timeout_s=0.01, **kwargs)
            comm.send("go", 1)
            return comm.recv(timeout_s=30, envelope=True)
        if comm.rank == 1:
            comm.send("gone", comm.recv(0) and 0)
        return None

    assert world(3).run(program)[0] == ("gone", 1, None)


def exchanges(comm):
    right, left = (comm.rank + 1) % comm.world_size, (comm.rank - 1) % comm.world_size
    if comm.world_size == 1:
        return
    # More data than the links buffer.
    big = np.full(1_000_000, comm.rank)
    assert_array_equal(comm.sendrecv(big, right, left), np.full(1_000_000, left))
    assert_array_equal(comm.sendrecv(big, right, left, tag=7), np.full(1_000_000, left))
    assert comm.sendrecv(comm.rank, left, tag=1, recv_tag=1) == right
    assert comm.sendrecv_async(comm.rank, left, right).wait() == right


def test_all_may_send_and_receive_at_once(everywhere):
    everywhere(exchanges)


def test_unexpected_messages_are_bounded(threads):
    def program(comm):
        if comm.rank == 1:
            for tag in range(3):
                comm.send(np.zeros(1000), 0, tag=tag)
            comm.send("last", 0, tag=9)
            return comm.barrier()
        assert comm.unexpected_bytes_max == 64 << 20
        comm.unexpected_bytes_max = 10_000
        with pytest.raises(rp.InputError, match=r"2 messages without a receive .* ranks \[1\] with tags 0, 1"):
            comm.recv(tag=9)
        comm.unexpected_bytes_max = 1 << 20
        assert comm.recv(tag=9) == "last"
        assert [comm.recv(1, tag=tag).shape for tag in (2, 0, 1)] == [(1000,)] * 3
        return comm.barrier()

    threads(2, program)


@pytest.mark.parametrize("sent, received", [({"tag": 1}, {}), ({}, {"tag": 1})], ids=["only sent", "only received"])
def test_tags_on_one_side_only_are_a_mismatch(threads, sent, received):
    def program(comm):
        with pytest.raises(rp.CollectiveMismatch, match="the tag of a message"):
            if comm.rank == 0:
                comm.recv(1, **received)
            else:
                comm.send("value", 0, **sent)
                comm.barrier()

    threads(2, program)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_rank_that_waits_for_any_is_reported_when_all_others_wait_for_it(threads, workers):
    def program(comm):
        with pytest.raises(rp.CollectiveMismatch, match=r"wait for each other(?=.*rank 0 (waits|called))(?=.*barrier)"):
            comm.recv() if comm.rank == 0 else comm.barrier()

    threads(workers, program)


COLLECTIVES = {
    "an array": lambda comm: comm.allreduce(np.ones(5)),
    "nothing": lambda comm: comm.barrier(),
    "an object": lambda comm: comm.broadcast({"from": comm.rank}),
    "objects": lambda comm: comm.allgather([comm.rank]),
}


def overtaking(comm, length):
    """Send messages from rank 1 to rank 0 before or after a collective."""
    for collective in COLLECTIVES.values():
        for receives_first in (True, False):
            for into, tag in ((None, None), (np.empty(length), None), (None, 7), (np.empty(length), rp.ANY_TAG)):
                if comm.rank == 1:
                    value = np.full(length, 3.0)
                    if receives_first:
                        collective(comm)
                    plain = into is not None and tag is None
                    sent = comm.send_into_async(value, 0) if plain else comm.send_async(value, 0, tag=tag and 7)
                    if not receives_first:
                        collective(comm)
                    sent.wait()
                    continue
                if not receives_first:
                    collective(comm)
                source = None if tag == rp.ANY_TAG else 1
                arrived = comm.recv_async(source, out=into, tag=tag)
                if receives_first:
                    assert not arrived.done
                    collective(comm)
                assert_array_equal(arrived.wait(), np.full(length, 3.0))


@pytest.mark.parametrize("links", ["tcp", "shared-memory"])
def test_messages_and_collectives_overtake_each_other(links):
    with rp.launch(workers=2, links=links, threads=1) as job:
        for length in (3, 300_000):
            job.run(overtaking, length)


def in_the_order_of_receives(comm):
    if comm.rank == 1:
        for value in ("first", "second", "third", "fourth"):
            comm.send(value, 0, tag=5)
        comm.send("untagged", 0)
        comm.send(np.arange(3.0), 0)
        return comm.barrier()
    handles = [comm.recv_async(1, tag=5), comm.recv_async(tag=rp.ANY_TAG), comm.recv_async(1, tag=5, timeout_s=60.0)]
    assert comm.recv(1, tag=5) == "fourth"
    assert handles.pop(rp.wait_any(handles)).wait() == "first"
    assert [handle.wait() for handle in handles[::-1]] == ["third", "second"]
    untagged = comm.recv_async(1)
    assert_array_equal(comm.recv(1), np.arange(3.0))
    assert untagged.done and untagged.wait() == "untagged"
    late = comm.recv_async(1, tag=5, timeout_s=0.01)
    with pytest.raises(TimeoutError, match="no message from rank 1"):
        late.wait()
    return comm.barrier()


def test_receives_take_messages_in_the_order_in_which_they_began(world):
    world(2).run(in_the_order_of_receives)


def test_wrong_arguments_of_messages_are_named(world):
    def program(comm):
        for call, message in [
            (lambda: comm.send(1, 1 - comm.rank, tag=-1), "tag=-1"),
            (lambda: comm.recv(1 - comm.rank, tag=-2), "tag=-2.*ANY_TAG"),
            (lambda: comm.recv(7), "source=7"),
            (lambda: comm.recv(comm.rank), "a rank other than this one"),
            (lambda: comm.recv(timeout_s=-1.0), "timeout_s=-1.0"),
            (lambda: comm.group([5]), "ranks=5"),
            (lambda: comm.group([0, 0, 1]), "each rank once"),
            (lambda: comm.group([1 - comm.rank]), "only members call it"),
            (lambda: rp.wait_any([]), "at least one"),
        ]:
            with pytest.raises(rp.InputError, match=message):
                call()

    world(2).run(program)
    with pytest.raises(rp.InputError, match="no other rank"):
        world(1).run(lambda comm: comm.recv())


def members_only(comm):
    for size in range(1, comm.world_size + 1):
        members = list(range(size))[::-1]
        for _ in range(3):
            if comm.rank not in members:
                continue
            with comm.group(members) as part:
                assert (part.rank, part.world_size) == (members.index(comm.rank), size)
                assert part.first_ranks == members
                assert part.allgather(comm.rank) == members
                assert part.allreduce(1) == size
    # Overlapping groups, and splits between them.
    halves = comm.split(comm.rank % 2)
    pairs = [comm.group([low, low + 1]) for low in range(comm.world_size - 1) if comm.rank in (low, low + 1)]
    assert all(pair.allreduce(1) == 2 for pair in pairs)
    assert halves.group(list(range(halves.world_size))).allreduce(comm.rank) == sum(
        range(comm.rank % 2, comm.world_size, 2)
    )
    assert comm.allreduce(1) == comm.world_size


def test_only_members_create_a_group(everywhere):
    everywhere(members_only)


def test_members_that_disagree_get_both_lists(threads):
    def program(comm):
        with pytest.raises(
            rp.CollectiveMismatch, match=r"the ranks \[0, 1\].*the ranks \[0, 1, 2\]|\[0, 1, 2\].*\[0, 1\]"
        ):
            comm.group([0, 1] if comm.rank == 0 else [0, 1, 2])

    threads(3, program)


def first_of_several(comm):
    if comm.rank == 0:
        handles = [comm.recv_async(source, out=np.empty(1)) for source in range(1, comm.world_size)]
        order = []
        while handles:
            order.append(handles.pop(rp.wait_any(handles)).wait()[0])
        return order
    time.sleep(0.05 * (comm.world_size - comm.rank))
    comm.send_into(np.array([float(comm.rank)]), 0)
    return None


def test_the_first_of_several_calls_is_waited_for(world):
    assert world(3).run(first_of_several)[0] == [2.0, 1.0]
    assert world(2).run(lambda comm: rp.wait_any([comm.allgather_async("object"), comm.barrier_async()])) == [0, 0]


@pytest.mark.exhaustive
def test_ranks_that_receive_from_each_other_are_named_with_their_receives(threads):
    def program(comm):
        other = 1 - comm.rank
        with pytest.raises(
            rp.CollectiveMismatch, match=rf"rank {comm.rank} called recv\(float64 × 3, from rank {other}\)"
        ):
            comm.recv(other, out=np.empty(3))

    threads(2, program)
