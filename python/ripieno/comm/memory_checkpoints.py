"""Provide checkpoints in the memory of ranks: states survive the loss of a rank, for a program that restarts.

All ranks have the same state in a *shared* checkpoint, so each rank keeps it without a copy elsewhere. For any other
checkpoint a rank keeps its own state and the state of the rank before it. A state is lost only if two neighbors die
at once. A new state replaces the old one when all ranks have stored theirs; until then ranks keep both.

Source: Plank, Li and Puening, "Diskless checkpointing", IEEE Trans. Parallel Distrib. Syst. 9(10), 1998, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ripieno import log
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.gathers import Gathers
from ripieno.errors import InputError, SerializationError
from ripieno.units import bytes_text
from ripieno.wire import packing
from ripieno.wire.objects import Unsendable


@dataclass(frozen=True)
class RankCheckpoint:
    """One rank's part of a checkpoint.

    Attributes
    ----------
    version
        Increases with each checkpoint.
    world_size
        The number of ranks when the checkpoint was stored.
    rank
        This rank's number when the checkpoint was stored.
    states
        The stored states by rank. For a shared checkpoint, the state of this rank.
    is_shared
        Whether all ranks have the same state.
    """

    version: int
    world_size: int
    rank: int
    states: dict[int, NDArray[Any]]
    is_shared: bool


class MemoryCheckpoints(Exchanges, Gathers):
    """Calls of a communicator that store and restore states."""

    def checkpoint(self, name: str, state: Any, *, shared: bool = False) -> None:
        """Store a state in memory for a program that restarts (``launch(on_failure=)``), in place of the last one.

        All ranks call it. The state is stored until the program ends, also on ranks that continue without others.

        Parameters
        ----------
        name : str
            The name of the checkpoint, the same on every rank.
        state : object
            The value that `restore` returns. It is copied.
        shared : bool
            Whether the state is the same on all ranks. If so, each rank stores it without a message. Otherwise each
            rank also sends its state to the next rank, which doubles the memory: a state is lost only if both ranks
            die. It then includes the amounts that the rank has added to accumulators, which `restore` brings back.

        Raises
        ------
        InputError
            The communicator is not the world, or a checkpoint of the other kind has this name.
        SerializationError
            The state cannot be serialized.
        """
        stored = self._stored_under(name, shared)
        call = f"checkpoint({name!r})"
        try:
            packed = packing.pack(state if shared else (state, self._added))
        except SerializationError as error:
            if not shared:
                self._allgather_values(call, Unsendable(self.rank, error))
            raise
        blob = packing.blob(packed)
        version = max((each.version for each in stored), default=0)
        if shared:
            self._memory[name] = [RankCheckpoint(version + 1, self.world_size, self.rank, {self.rank: blob}, True)]
            self._log_stored(name, version + 1, blob)
            return
        # A replacement rank starts at version 0, so all ranks continue from the highest version.
        version = max(self._allgather_values(call, version)) + 1
        before = (self.rank - 1) % self.world_size
        states = {before: self.rotate(blob), self.rank: blob}
        own = RankCheckpoint(version, self.world_size, self.rank, states, False)
        self._memory[name] = [*stored, own]
        self.barrier()
        self._memory[name] = [own]
        self._log_stored(name, version, blob)

    def _log_stored(self, name: str, version: int, blob: NDArray[Any]) -> None:
        # One rank logs for all, and it logs at versions that are powers of two.
        if self.rank == 0 and version & (version - 1) == 0:
            text = f"checkpoint {name!r}, version {version}: {bytes_text(blob.nbytes)} of each rank in memory"
            log.note("ripieno.comm", text, 0)

    def restore(self, name: str) -> Any:
        """Return the state of the last checkpoint that is complete, or None if none exists.

        All ranks call it.

        Parameters
        ----------
        name : str
            The name passed to `checkpoint`.

        Returns
        -------
        object
            For a shared checkpoint: the state, on every rank. Otherwise: a dict from the storing rank to its state,
            with the states from which this rank resumes: its own, and the state of the rank before it if that rank is
            lost. The dict is empty on a replacement rank.

        Raises
        ------
        InputError
            The communicator is not the world.
        """
        own = self._stored_under(name, None)
        all_entries = self._allgather_values(
            f"restore({name!r})",
            [(each.version, each.world_size, each.rank, list(each.states), each.is_shared) for each in own],
        )
        holders: dict[tuple[int, int, bool], dict[int, list[tuple[bool, int]]]] = {}
        for rank, entries in enumerate(all_entries):
            for version, world_size, owner, states, is_shared in entries:
                copies = holders.setdefault((version, world_size, is_shared), {})
                for state in states:
                    # The rank that stored the state has the copy that sorts first.
                    copies.setdefault(state, []).append((state != owner, rank))
        complete = [key for key, copies in holders.items() if key[2] or len(copies) == key[1]]
        if not complete:
            return None
        version, world_size, is_shared = max(complete)
        copies = holders[version, world_size, is_shared]
        found = next((each for each in own if (each.version, each.world_size) == (version, world_size)), None)
        if self.rank == 0:
            log.note("ripieno.comm", f"resumes from checkpoint {name!r}, version {version}, in memory", 0)
        if is_shared:
            root = min(rank for ranks in copies.values() for _, rank in ranks)
            blob = self.broadcast(None if found is None else found.states[found.rank], root=root)
            self._memory[name] = [RankCheckpoint(version, self.world_size, self.rank, {self.rank: blob}, True)]
            return packing.read_blob(blob.copy())
        resumed = [state for state in sorted(copies) if min(copies[state])[1] == self.rank]
        assert found is not None or not resumed, "only a rank with its own checkpoint resumes from it"
        entries = {} if found is None else {each: packing.read_blob(found.states[each].copy()) for each in resumed}
        own_rank = None if found is None else found.rank
        added = {each: amounts for each, (_, amounts) in entries.items()}
        self._added.restore(added.pop(own_rank, None), list(added.values()))
        return {each: state for each, (state, _) in entries.items()}

    def _stored_under(self, name: str, is_shared: bool | None) -> list[RankCheckpoint]:
        if self._parent is not None:
            raise InputError("checkpoints in memory belong to the communicator of the world: call its method")
        if not isinstance(name, str):
            raise InputError(f"name: a {type(name).__name__}: expected a str")
        stored = self._memory.get(name, [])
        if is_shared is not None and any(each.is_shared != is_shared for each in stored):
            raise InputError(f"name={name!r}: a checkpoint of this name is {'not ' if is_shared else ''}shared")
        return stored
