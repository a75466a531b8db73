"""Create communicators from a communicator: of some of its ranks, of logical ranks, or of the survivors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, overload

import ripieno.flight as flight
from ripieno import log
from ripieno._checks import whole_number
from ripieno.comm.rank import CallBase, members_of
from ripieno.comm.survivor_agreement import Agreements
from ripieno.errors import InputError, RankFailed

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator


class SplitCalls(CallBase):
    """Calls of a communicator that create another one."""

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Divide the ranks: all ranks with the same color get a new communicator.

        Parameters
        ----------
        color : int or None
            Not negative. Ranks with the same color form a communicator. A rank with None joins none.
        key : int
            Members are numbered in the order of their keys; equal keys keep the order of ranks.

        Returns
        -------
        Communicator or None
            It uses the connections of this communicator, may be split again, and closes with the world at the latest.
            Its ranks have new numbers, but `RankFailed.rank` and "waited_for" of `flight` are ranks of the world,
            because a failure affects the whole world.
        """
        if color is not None:
            color = whole_number("color", color, 0, 2**32 - 1, f"expected None or a whole number, 0 … {2**32 - 1}")
        native = self._native.split(color, whole_number("key", key, -(2**63), 2**63 - 1))
        return None if native is None else self._member(native)

    def group(self, ranks: Sequence[int]) -> Self:
        """Return the communicator of some ranks. Only these ranks call it, whereas all ranks call `split`.

        Parameters
        ----------
        ranks : sequence of int
            Ranks of this communicator, including this one, in the order of their new numbers. The list is the same on
            each of them. If the lists differ, `CollectiveMismatch` shows both.

        Returns
        -------
        Communicator
            As for `split`. Each call creates a new communicator, and calls of different communicators never mix.

        Examples
        --------
        >>> import ripieno as rp
        >>> def program(comm):
        ...     if comm.rank == 2:
        ...         return "not in the pair"
        ...     with comm.group([1, 0]) as pair:
        ...         return pair.rank, pair.allreduce(comm.rank)
        >>> with rp.launch(workers=3) as job:
        ...     job.run(program)
        [(1, 1), (0, 1), 'not in the pair']
        """
        listed = [self._rank("ranks", rank) for rank in ranks]
        return self._member(self._native.group(listed))

    def replicate(self, replicas: int) -> Self:
        """Return the communicator of logical ranks. A logical rank lives as long as one of its replicas does.

        In a world started with ``replicas=s`` (`ripieno.launch`, ``ripieno run --replicas``, or RIPIENO_REPLICAS in the
        environment of every rank) the ranks ``i``, ``i + m``, ``i + 2m`` … of the world, with ``m = world_size / s``,
        are replicas of logical rank ``i``. They hold the same data and make the same calls. Every message goes to all
        replicas of its receiver. A receiver takes each byte from the replica of the sender that delivers it first. So
        every collective ends with the same bits on every live rank, as long as one replica of each logical rank
        lives. When the last replica of a rank dies, all calls raise `RankFailed`. After the death of any rank, calls on
        the world itself, or on a communicator that was split from it, raise it, too. An exception in one replica ends
        the job, because the other replicas would raise it as well.

        Parameters
        ----------
        replicas : int
            The number of replicas at the start of the world.

        Returns
        -------
        Communicator
            It has ``m`` ranks: `rank` is the logical rank, `replica` the index of this process among its replicas. It
            may be split. `RankFailed.rank` and "waited_for" of `flight` are ranks of the world.

        Raises
        ------
        InputError
            This communicator is not the world, or the world was started with another number of replicas.

        Notes
        -----
        Replicas must produce the same bytes. Objects other than arrays are sent as pickles, so they must not contain
        times, random numbers without a common seed and the like. Ripieno's launchers set PYTHONHASHSEED if ranks have
        replicas and it is unset, so that sets of strings have one order. Other launchers must set it, too.

        After a call has ended, a slower replica may still have bytes to send. The next calls take these bytes from its
        link. A rank sends its messages completely to all replicas. So a replica delays the others if it lags by more
        than the links hold (1 MiB each in shared memory).
        """
        native = self._native.replicate(whole_number("replicas", replicas, 1, 2**32 - 1))
        return self._member(native)

    def shrink(self) -> Self:
        """Return a communicator of the surviving ranks after a failure. Each survivor calls it.

        ::

            while True:
                try:
                    return work(comm)
                except rp.RankFailed:
                    comm = comm.shrink()

        The survivors agree on the members, even if others die meanwhile (rank 0, too), and connect in a new world.
        Any two ranks that return from the same call have the same members. The next call on the new communicator
        detects a later death: hence the loop. If a rank dies while the survivors connect, some ranks may return from
        one more call than others.

        Returns
        -------
        Communicator
            It has the remaining ranks, renumbered in their order; `first_ranks` gives their ranks in the launched
            world. Hosts, nodes, racks and `cache` stay. It has new connections, so no message of the old world arrives
            in it.

        Raises
        ------
        RankFailed
            This rank cannot continue, and `rank` is its own. Either it was stopped or cut off for longer than the
            heartbeat timeout, or it did not call within the rendezvous timeout of the first caller, and the others
            continued without it. Or it reaches at most half of the ranks and cannot know whether the others live: only
            ranks of a single node may continue as a minority. This communicator is then closed.
        InputError
            Nothing has failed; this communicator was split or replicated from another; or ranks have replicas, which
            continue in place of the dead ones.

        Notes
        -----
        This communicator is closed: its calls, and the calls of all communicators split from it, raise `RankFailed`.
        The message names ``shrink()``. Asynchronous calls in flight have ended with `RankFailed`. Sparse reductions,
        persistent calls, partitioned graphs and broadcast variables belong to the communicator that created them.
        Create them again with the new one. Broadcast values that have arrived can still be read. After a
        `CollectiveMismatch` all ranks may call it, and all ranks remain.

        `ripieno.launch` requires ``on_failure="shrink"``, under ``ripieno run`` the option ``--on-failure shrink``.
        Otherwise the launcher ends all ranks after the first failure. An engine such as Spark ends them itself.

        Source: Bland et al., "Post-failure recovery of MPI communication capability: design and rationale", IJHPCA
        2013.
        """
        if self._parent is not None:
            raise InputError("shrink: expected the communicator of the world; split or replicate its result")
        comm: Self = self._shrunk() if self._agreements is None else self._agreements.resolve()
        self._successor, self._agreements = comm, None
        return comm

    @overload
    def agree(self, flag: bool) -> bool: ...

    @overload
    def agree(self, flag: int) -> int: ...

    def agree(self, flag: int) -> int:
        """Agree with the surviving ranks on a value, even if ranks die meanwhile. All ranks call it.

        A call that fails on one rank may have succeeded on another. With an agreement on its success, all survivors
        make the same decision whether its result counts::

            try:
                total = comm.allreduce(part)
                is_done = True
            except rp.RankFailed:
                is_done = False
            if not comm.agree(is_done):
                comm = comm.shrink()        # and compute `total` again

        Parameters
        ----------
        flag : bool or int
            The proposal of this rank.

        Returns
        -------
        int
            The bitwise AND of the flags of all ranks that have taken part, or bool if `flag` is one. All ranks that
            return get the same value, also if ranks die during the call.

        Raises
        ------
        RankFailed
            This rank cannot continue, as for `shrink`. The others continue without it.
        InputError
            This communicator was split or replicated from another one, or ranks have replicas, and a rank has failed.

        Notes
        -----
        It costs an allgather and a barrier; after a failure, the survivors connect first, as in `shrink`. This
        communicator stays as it is: if a rank has failed, its other calls raise `RankFailed` until `shrink`. It
        has the semantics of MPIX_Comm_agree in ULFM, but it acknowledges no failures: `shrink` reports the survivors.

        Examples
        --------
        >>> import ripieno as rp
        >>> with rp.launch(workers=2) as job:
        ...     job.run(lambda comm: comm.agree(comm.rank == 0))
        [False, False]
        """
        if not isinstance(flag, int):
            raise InputError(f"agree: a {type(flag).__name__}: expected a bool or a whole number")
        if self._parent is not None:
            raise InputError("agree: expected the communicator of the world")
        if self._agreements is None:
            if self._native_or_none is None:
                raise self._closed_error()
            self._agreements = Agreements(self)
        value = self._agreements.agree(int(flag))
        return bool(value) if isinstance(flag, bool) else value

    def _shrunk(self) -> Self:
        """Return a communicator of the surviving ranks, and close this one."""
        native = self._native
        flight.write_file(native)
        try:
            survivors, former_ranks, failure = native.shrink()
        except RankFailed as error:
            self._failure = error
            self.close()
            raise
        heartbeat_s = self._heartbeat_timeout_s
        comm = type(self)(survivors, threads=self.threads, on_event=self._on_event, heartbeat_timeout_s=heartbeat_s)
        comm.first_ranks = [self.first_ranks[rank] for rank in former_ranks]
        comm._without = sorted({*self._without, *self.first_ranks} - set(comm.first_ranks))
        comm.cache.update(self.cache)
        comm.restarts_on_failure, comm._memory, comm._fits = self.restarts_on_failure, self._memory, self._fits
        comm._call_timeout_s, comm._on_timeout_change = self._call_timeout_s, self._on_timeout_change
        comm._added = self._added
        comm._lasting = self._lasting
        self._failure, self._native_or_none = failure, None
        # Agreements continue in the new world.
        agreements, self._agreements = self._agreements, None
        for each in members_of(self):
            each.close()
        self._agreements = agreements
        lost = ", ".join(map(str, comm._without))
        log.note("ripieno.comm", f"continues as one of {comm.world_size} ranks, without {lost}", comm.rank)
        return comm

    @property
    def lost_ranks(self) -> list[int]:
        """The ranks of the world that have died while a replica of each lives, as far as this rank knows.

        For a communicator returned by `shrink`: the ranks of the launched world that it does not contain.
        """
        return self._without or self._native.lost()

    def _logical(self, replicas: int) -> Self:
        """Return the communicator for calls with ``replicas=``. Later calls return the same one."""
        if self._replicated is None or self._replicated.closed or self._replicated.replicas != replicas:
            self._replicated = self.replicate(replicas)
        return self._replicated

    def _member(self, native: NativeCommunicator) -> Self:
        """Return this process's membership in another communicator of the same world."""
        heartbeat_s = self._heartbeat_timeout_s
        return type(self)(
            native, threads=self.threads, on_event=self._on_event, parent=self, heartbeat_timeout_s=heartbeat_s
        )
