"""Which hosts share a rack, by how fast pairs of them are while all others are busy, too.

In a round every host exchanges bytes with one other. Within a rack a pair has its cables for itself; pairs of several
racks share uplinks, and are slower where these are full. So a slow pair stands in two racks, and a fast one in one, the
surer the more pairs of its round were slow. The first rounds are random. Later ones let most hosts exchange with hosts
of other supposed racks, which fills the uplinks. A round has p/2 probes, and there are O(log p) rounds.

The racks are those that make what was seen likeliest: each host is moved, and racks are merged, while that helps.
Networks whose uplinks are never full show no racks, and need none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
#: A pair is slow below this share of what its hosts have reached at best.
SLOW_SHARE = 0.85
#: How often a pair of one rack is slow all the same, because hosts were busy.
NOISE = 0.03
#: Up to this share of slow pairs, nothing but noise made them slow.
FLAT_SHARE = 0.08
#: What share of the pairs of different racks is slow at least.
FULL_SHARE = 0.4
#: Of the first rounds, which are random, what share of pairs is taken to stand in two racks.
CROSSING_SHARE = 0.8
#: Odds against the next best place of a host with which the search ends.
SURE_ODDS = 1e3
#: For so many rounds nothing may have changed.
KEPT_ROUNDS = 2
#: The logarithm of how much likelier a slow pair is to stand in one rack than in two.
SLOW_GAIN = -3.0
#: One host in so many is tested in a round, at most; the others fill the uplinks.
TESTED = 8
ROUNDING = 1e-9
#: Rounds, at most, times log2 of the hosts.
ROUNDS_MAX = 10


@dataclass(frozen=True)
class Racks:
    """What a search has found.

    Attributes
    ----------
    numbers
        Of each host the number of its rack, by first appearance.
    sure
        The probability of the least certain host's place.
    round_count, probe_count
        How much was measured.
    """

    numbers: list[int]
    sure: float
    round_count: int
    probe_count: int


def search(host_count: int, *, seed: int = 0) -> Generator[list[Pair], Sequence[float], Racks]:
    """Yields the pairs of each round, and is sent their rates; returns the racks.

    The same rates lead to the same rounds, so every rank can search by itself.

    Parameters
    ----------
    host_count
        How many hosts: three or more, for of two there is nothing to compare.
    seed
        Of what is drawn.
    """
    draw = random.Random(seed)
    seen = _Seen(host_count)
    log2 = math.ceil(math.log2(host_count))
    labels, odds, kept = [0] * host_count, np.full(host_count, math.inf), 0
    rivals = list(labels)
    for number in range(ROUNDS_MAX * log2):
        is_random = number < 2 * log2 or len(set(labels)) == 1
        pairs = _matching(host_count, draw) if is_random else _crossing(labels, odds, rivals, draw)
        seen.note(pairs, (yield pairs))
        if number < 2 * log2 - 1:
            continue
        before = labels
        labels, odds, rivals = seen.racks(None if number < 2 * log2 else labels)
        kept = kept + 1 if labels == before else 0
        # Sure, and so for some rounds.
        if kept >= KEPT_ROUNDS and odds.min() >= math.log(SURE_ODDS):
            break
    sure = 1 / (1 + math.exp(-min(float(odds.min()), 700.0)))
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return Racks([numbers[label] for label in labels], sure, len(seen.rounds), sum(map(len, seen.rounds)))


class _Seen:
    """All rounds so far. What is slow is so beside the median of what hosts have reached at best."""

    def __init__(self, host_count: int) -> None:
        self.host_count = host_count
        self.rounds: list[list[Pair]] = []
        self.rates: list[NDArray[np.float64]] = []
        self.best = np.zeros(host_count)

    def note(self, pairs: list[Pair], rates: Sequence[float]) -> None:
        """What a round has shown."""
        self.rounds.append(pairs)
        self.rates.append(np.asarray(rates, np.float64))
        for pair, rate in zip(pairs, rates, strict=True):
            for host in pair:
                self.best[host] = max(self.best[host], rate)

    def racks(self, labels: list[int] | None) -> tuple[list[int], NDArray[np.float64], list[int]]:
        """The likeliest racks, and the logarithm of the odds of each host's; `labels` were the likeliest before."""
        limit = SLOW_SHARE * float(np.median(self.best))
        slow = [rates < limit for rates in self.rates]
        total, count = sum(int(each.sum()) for each in slow), sum(len(each) for each in slow)
        if total <= FLAT_SHARE * count:
            # Behind full uplinks most pairs would have been slow, so each round of a host speaks for one rack.
            return self._one_rack(count - total)
        gains = np.zeros((self.host_count, self.host_count))
        for pairs, is_slow in zip(self.rounds, slow, strict=True):
            for (one, other), was_slow, full in zip(pairs, is_slow, _fullness(pairs, is_slow, labels), strict=True):
                gain = SLOW_GAIN if was_slow else max(0.0, math.log((1 - NOISE) / max(NOISE, 1 - full)))
                gains[one, other] += gain
                gains[other, one] += gain
        found = _likeliest(gains)
        crossing = [
            bool(was_slow)
            for pairs, is_slow in zip(self.rounds, slow, strict=True)
            for (one, other), was_slow in zip(pairs, is_slow, strict=True)
            if found[one] != found[other]
        ]
        if sum(crossing) < FULL_SHARE * len(crossing):
            # Any noise has racks that explain it best. But uplinks that are full slow most pairs that cross them.
            return self._one_rack(count - total)
        return found, *_odds(gains, found)

    def _one_rack(self, quick_count: int) -> tuple[list[int], NDArray[np.float64], list[int]]:
        """All hosts in one; each pair that was not slow speaks for it."""
        found = [0] * self.host_count
        return found, np.full(self.host_count, float(quick_count) / self.host_count), found


def _fullness(pairs: list[Pair], slow: NDArray[np.bool_], labels: list[int] | None) -> list[float]:
    """Per pair, how often it would have been slow if it stood in two racks, for their uplinks were full."""
    usual = min(1.0, float(slow.mean()) / CROSSING_SHARE)
    if labels is None:
        return [usual] * len(pairs)
    crossed: dict[int, list[int]] = {}
    for (one, other), was_slow in zip(pairs, slow, strict=True):
        if labels[one] != labels[other]:
            for host in (one, other):
                count = crossed.setdefault(labels[host], [0, 0])
                count[0] += int(was_slow)
                count[1] += 1
    found = []
    for (one, other), was_slow in zip(pairs, slow, strict=True):
        own = int(labels[one] != labels[other])
        shares = []
        for host in (one, other):
            slow_count, all_count = crossed.get(labels[host], [0, 0])
            # The others of its racks tell, not itself, and what is usual in this round counts as two of them.
            shares.append((slow_count - own * int(was_slow) + 2 * usual) / (all_count - own + 2))
        found.append(max(shares))
    return found


def _likeliest(gains: NDArray[np.float64]) -> list[int]:
    """Labels of hosts that make the sum of the gains within racks great: hosts move, then racks merge."""
    count = len(gains)
    labels = np.arange(count)
    for _ in range(count):
        for _ in range(count):
            has_moved = False
            for host in range(count):
                # A label that nobody has is a rack of its own, which gains nothing.
                sums = np.bincount(labels, weights=gains[host], minlength=count)
                best = int(np.argmax(sums))
                if sums[best] > sums[labels[host]] + ROUNDING:
                    labels[host] = best
                    has_moved = True
            if not has_moved:
                break
        members = np.array([labels == label for label in np.unique(labels)], np.float64)
        between = members @ gains @ members.T
        np.fill_diagonal(between, -np.inf)
        one, other = np.unravel_index(int(np.argmax(between)), between.shape)
        if between[one, other] <= ROUNDING:
            break
        labels[members[other] > 0] = labels[np.argmax(members[one])]
    return [int(label) for label in labels]


def _odds(gains: NDArray[np.float64], labels: list[int]) -> tuple[NDArray[np.float64], list[int]]:
    """Per host, the logarithm of the odds of its rack against the next best one, or one of its own; and that one."""
    count, array = len(labels), np.asarray(labels)
    found, others, rivals = np.zeros(count), sorted(set(labels)), list(labels)
    for host in range(count):
        sums = np.bincount(array, weights=gains[host], minlength=count)
        own, is_alone = labels[host], (array == labels[host]).sum() == 1
        rival = max((label for label in others if label != own), key=lambda label: sums[label], default=own)
        best = -math.inf if rival == own else float(sums[rival])
        if not is_alone and best < 0:
            # The next best is a rack of its own: what its own rack shows decides.
            rival, best = own, 0.0
        found[host], rivals[host] = sums[own] - best, rival
    return found, rivals


def _matching(count: int, draw: random.Random) -> list[Pair]:
    """Every host with another one, at random; of an odd number one rests."""
    hosts = list(range(count))
    draw.shuffle(hosts)
    return list(zip(hosts[::2], hosts[1::2], strict=False))


def _crossing(labels: list[int], odds: NDArray[np.float64], rivals: list[int], draw: random.Random) -> list[Pair]:
    """Most hosts with one of another rack, and the least certain ones with one of the rack that they may belong to."""
    racks = {rack: [host for host, label in enumerate(labels) if label == rack] for rack in dict.fromkeys(labels)}
    for hosts in racks.values():
        draw.shuffle(hosts)
    pairs: list[Pair] = []
    for host in sorted(range(len(labels)), key=lambda host: odds[host])[: 1 + len(labels) // TESTED]:
        own, rival = racks[labels[host]], racks[rivals[host]]
        if host in own and set(rival) - {host}:
            own.remove(host)
            pairs.append((host, rival.pop()))
    left = list(racks.values())
    draw.shuffle(left)
    # The fullest rack gives one host, and the next fullest the other, so that as few as may be are left over.
    while len(left := sorted(filter(None, left), key=len, reverse=True)) > 1:
        pairs.append((left[0].pop(), left[1].pop()))
    if left:
        pairs += zip(left[0][::2], left[0][1::2], strict=False)
    return pairs
