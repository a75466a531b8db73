"""Groups: ordered sets of ranks, without communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from ripieno.errors import InputError
from ripieno.mpi.constants import IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from ripieno.mpi.unsupported import refusing

#: The rank of this process in the launched world, and the number of ranks; the package sets them.
world_place = [0, 1]


@refusing
class Group:
    """An ordered set of ranks of the world.

    Parameters
    ----------
    group : Group, optional
        Another reference to this group is created. By default the group is null.
    """

    _ranks: tuple[int, ...] | None

    def __new__(cls, group: Group | None = None) -> Self:
        if not isinstance(group, Group | None):
            raise TypeError(f"Group: a {type(group).__name__}: expected a group")
        instance = object.__new__(cls)
        instance._ranks = None if group is None else group._ranks
        return instance

    @classmethod
    def _of(cls, ranks: Sequence[int]) -> Group:
        instance = cls()
        instance._ranks = tuple(ranks)
        return instance

    @property
    def ranks(self) -> tuple[int, ...]:
        """The members, by their ranks in the launched world."""
        if self._ranks is None:
            raise InputError("group: GROUP_NULL: expected a group; a freed group is null")
        return self._ranks

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def Get_rank(self) -> int:
        """Return the rank of this process in the group, or `UNDEFINED`."""
        return self._place(world_place[0])

    size = property(Get_size)
    rank = property(Get_rank)

    def Dup(self) -> Group:
        """Return the same group."""
        return Group._of(self.ranks)

    def Incl(self, ranks: Sequence[int]) -> Group:
        """Return the group of the ranks at these positions."""
        return Group._of([self.ranks[rank] for rank in self._checked("Incl", ranks)])

    def Excl(self, ranks: Sequence[int]) -> Group:
        """Return the group without the ranks at these positions."""
        excluded = set(self._checked("Excl", ranks))
        return Group._of([each for place, each in enumerate(self.ranks) if place not in excluded])

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Return the group of the ranks at the positions in ranges (first, last, stride)."""
        return self.Incl(_positions(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Return the group without the ranks at the positions in ranges (first, last, stride)."""
        return self.Excl(_positions(ranks))

    def Union(self, group: Group) -> Group:
        """Return the ranks of this group, and then the other ranks of `group`."""
        return Group._of(list(dict.fromkeys([*self.ranks, *group.ranks])))

    def Intersection(self, group: Group) -> Group:
        """Return the ranks that are in both groups, in the order of this group."""
        return Group._of([rank for rank in self.ranks if rank in group.ranks])

    Intersect = Intersection

    def Difference(self, group: Group) -> Group:
        """Return the ranks of this group that are not in `group`."""
        return Group._of([rank for rank in self.ranks if rank not in group.ranks])

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """Return the positions in `group`, by default the world, of the ranks at these positions, by default all."""
        target = Group._of(range(world_place[1])) if group is None else group
        positions = range(self.size) if ranks is None else ranks
        return [
            PROC_NULL if each == PROC_NULL else target._place(self.ranks[self._checked("Translate_ranks", [each])[0]])
            for each in positions
        ]

    def Compare(self, group: Group) -> int:
        """Return `IDENT` for the same ranks in the same order, `SIMILAR` for the same ranks, otherwise `UNEQUAL`."""
        if self.ranks == group.ranks:
            return IDENT
        return SIMILAR if sorted(self.ranks) == sorted(group.ranks) else UNEQUAL

    def Free(self) -> None:
        """Turn this reference into the null group."""
        self._ranks = None

    def free(self) -> None:
        """Turn this reference into the null group, unless it is `GROUP_EMPTY`."""
        if self is not GROUP_EMPTY:
            self._ranks = None

    def __bool__(self) -> bool:
        return self._ranks is not None

    def __eq__(self, other: object) -> bool:
        return self._ranks == other._ranks if isinstance(other, Group) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ranks)

    def __repr__(self) -> str:
        return f"<Group {self._ranks}>" if self else "<Group null>"

    def __reduce__(self) -> Any:
        if self is GROUP_NULL or self is GROUP_EMPTY:
            return "GROUP_NULL" if self is GROUP_NULL else "GROUP_EMPTY"
        if self._ranks:
            raise InputError("a group of ranks cannot be pickled; send the ranks, and use Incl")
        return type(self), () if self._ranks is None else (GROUP_EMPTY,)

    def _place(self, rank: int) -> int:
        return self.ranks.index(rank) if rank in self.ranks else UNDEFINED

    def _checked(self, call: str, positions: Sequence[int]) -> Sequence[int]:
        for each in positions:
            if not 0 <= each < len(self.ranks):
                raise InputError(f"{call}: rank {each}: expected 0 … {len(self.ranks) - 1} in a group")
        return positions


def _positions(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    found: list[int] = []
    for first, last, stride in ranges:
        if stride == 0:
            raise InputError(f"range {(first, last, stride)}: expected a stride other than 0")
        found.extend(range(first, last + (1 if stride > 0 else -1), stride))
    return found


GROUP_NULL = Group()
GROUP_EMPTY = Group._of([])
