"""Communicators made of a communicator: of some of its ranks, or of ranks that have replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import ripieno.flight as flight
from ripieno import log
from ripieno._checks import whole
from ripieno.comm.rank import CallBase, members_of
from ripieno.errors import InputError, RankFailed

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator


class SplitCalls(CallBase):
    """The calls of a communicator that make another."""

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Divide the ranks: those of one color get a communicator of their own.

        Parameters
        ----------
        color : int or None
            Not negative. Ranks of the same color come together. A rank with None is in no new communicator.
        key : int
            Members are numbered in the order of their keys, and of their ranks here where these are equal.

        Returns
        -------
        Communicator or None
            It uses the connections of this one, may be split again, and is closed with the world at the latest. Its
            ranks are numbered anew, but `RankFailed.rank` and "waited_for" of `flight` are ranks of the world, as a
            failure is one of the whole world.
        """
        if color is not None:
            color = whole("color", color, 0, 2**32 - 1, f"expected None or a whole number, 0 … {2**32 - 1}")
        native = self._native.split(color, whole("key", key, -(2**63), 2**63 - 1))
        return None if native is None else self._member(native)

    def group(self, ranks: Sequence[int]) -> Self:
        """The communicator of some ranks, which they alone call; `split` is called by all.

        Parameters
        ----------
        ranks : sequence of int
            Ranks of this communicator, this one among them, in the order in which they are numbered in the new one. The
            same list on each of them; whoever has another is told so by `CollectiveMismatch`, with both lists.

        Returns
        -------
        Communicator
            As of `split`. Each call makes a new one, whose calls are never taken for those of another.

        Examples
        --------
        >>> import ripieno as rp
        >>> def program(comm):
        ...     if comm.rank == 2:
        ...         return "at home"
        ...     with comm.group([1, 0]) as pair:
        ...         return pair.rank, pair.allreduce(comm.rank)
        >>> with rp.launch(workers=3) as job:
        ...     job.run(program)
        [(1, 1), (0, 1), 'at home']
        """
        listed = [self._rank("ranks", rank) for rank in ranks]
        return self._member(self._native.group(listed))

    def replicate(self, replicas: int) -> Self:
        """The communicator of logical ranks. A logical rank lives as long as one of its replicas does.

        In a world started with ``replicas=s`` (`ripieno.launch`, ``ripieno run --replicas``, or RIPIENO_REPLICAS in the
        environment of every rank) the ranks ``i``, ``i + m``, ``i + 2m`` … of the world, with ``m = world_size / s``,
        are replicas of logical rank ``i``. They hold the same data and make the same calls. Every message goes to all
        replicas of its receiver, which takes each byte from the replica of the sender that brings it first. So every
        collective ends with the same bits on every living rank, as long as one replica of each logical rank lives. When
        the last replica of a rank dies, all calls raise `RankFailed`. Once any rank has died, so does every call on the
        world itself, or on a communicator that was split from it. An exception in one replica ends the job, because its
        replicas would raise it, too.

        Parameters
        ----------
        replicas : int
            As many as the world was started with.

        Returns
        -------
        Communicator
            Of ``m`` ranks: `rank` is the logical rank, `replica` says which replica of it this process is. It may be
            split. `RankFailed.rank` and "waited_for" of `flight` are ranks of the world.

        Raises
        ------
        InputError
            This is not the communicator of the world, or the world was started with another number of replicas.

        Notes
        -----
        Replicas must give the same bytes. Other objects than arrays travel as pickles, so times, random numbers without
        a common seed and the like have no place in them. Ripieno's launchers set PYTHONHASHSEED where ranks have
        replicas and it is not set, so that sets of strings have one order; other launchers have to.

        When a call has ended, a slower replica may still have to send. These bytes are taken from its link during the
        next calls. A rank sends to all replicas to the end. So a replica holds the others back if it lags by more than
        the links hold (1 MiB each in shared memory).
        """
        native = self._native.replicate(whole("replicas", replicas, 1, 2**32 - 1))
        return self._member(native)

    def shrink(self) -> Self:
        """After a failure: the communicator of those who are left. Each of them calls it.

        ::

            while True:
                try:
                    return work(comm)
                except rp.RankFailed:
                    comm = comm.shrink()

        The survivors agree who goes on, also when others die meanwhile, rank 0 included, and meet in a new world. Two
        ranks that come back have the same ranks beside them. What dies after that is found by the next call on the
        new communicator: hence the loop. Then a rank may come back once less often than another, which has met the
        others only in the next world.

        Returns
        -------
        Communicator
            Of the ranks that are left, numbered anew in their order; `first_ranks` says who they were. Hosts, nodes,
            racks and `kept` stay. It has new connections, so that nothing of the old world arrives there.

        Raises
        ------
        RankFailed
            This rank does not go on, and `rank` is its own: it was stopped or cut off for longer than the heartbeat
            timeout, or did not come within the rendezvous timeout of the first, and the others went on without it. Or
            it reaches no more than half of the ranks and cannot know whether the others live: only ranks of a single
            node go on in a smaller part. This communicator is closed then.
        InputError
            Nothing has failed; this communicator was split or replicated from another; or ranks have replicas, which go
            on in the place of the dead.

        Notes
        -----
        This communicator is closed: its calls, and those of all that was split from it, raise `RankFailed` and name
        ``shrink()``. Asynchronous calls in flight have ended with `RankFailed`. Sparse reductions, persistent calls,
        partitioned graphs and broadcast variables are of the communicator that made them: make them anew from the new
        one. Broadcast values that are here already can still be read. After a `CollectiveMismatch` all ranks may call
        it, and all are left.

        In `ripieno.launch` it needs ``on_failure="shrink"``, under ``ripieno run`` the option ``--on-failure shrink``;
        otherwise these end all ranks with the first. An engine such as Spark ends them itself.

        Source: Bland et al., "Post-failure recovery of MPI communication capability: design and rationale", IJHPCA
        2013.
        """
        if self._parent is not None:
            raise InputError("shrink: expected the communicator of the world; split or replicate what it gives")
        native = self._native
        flight.leave_file(native)
        try:
            left, places, failure = native.shrink()
        except RankFailed as error:
            self._failure = error
            self.close()
            raise
        comm = type(self)(left, threads=self.threads, on_event=self._on_event)
        comm.first_ranks = [self.first_ranks[place] for place in places]
        comm._without = sorted({*self._without, *self.first_ranks} - set(comm.first_ranks))
        comm.kept.update(self.kept)
        comm.begins_again, comm._memory, comm._fits = self.begins_again, self._memory, self._fits
        comm._lasting = self._lasting
        self._successor, self._failure, self._native_or_none = comm, failure, None
        for each in members_of(self):
            each.close()
        lost = ", ".join(map(str, comm._without))
        log.note("ripieno.comm", f"goes on as one of {comm.world_size} ranks, without {lost}", comm.rank)
        return comm

    @property
    def lost_ranks(self) -> list[int]:
        """The ranks of the world that have died while a replica of each lives, as far as this rank knows.

        Of a communicator that `shrink` gave: the ranks of the world that was launched that are not in it.
        """
        return self._without or self._native.lost()

    def _logical(self, replicas: int) -> Self:
        """The communicator for calls with ``replicas=``, always the same."""
        if self._replicated is None or self._replicated.closed or self._replicated.replicas != replicas:
            self._replicated = self.replicate(replicas)
        return self._replicated

    def _member(self, native: NativeCommunicator) -> Self:
        """This process in another communicator of the same world."""
        return type(self)(native, threads=self.threads, on_event=self._on_event, parent=self)
