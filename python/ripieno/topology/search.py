"""Detect racks from the transfer rates of host pairs while all other hosts are busy.

In a round every host exchanges data with one other host. A pair within a rack has its links to itself. Pairs in
different racks share uplinks, and are slower if these are full. A slow pair therefore indicates two racks, and a fast
pair one rack; a fast pair is stronger evidence the more pairs of its round were slow. The first rounds are random. In
later rounds most hosts exchange with hosts of other assumed racks, which fills the uplinks. A round has p/2 probes, and
the search takes O(log p) rounds.

The result is the assignment with the highest likelihood found by a local search: it moves single hosts and merges racks
while the likelihood increases. Networks with uplinks that are never full show no racks, and need none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
#: A pair is slow below this share of its hosts' best rates.
SLOW_SHARE = 0.85
#: Probability that a pair within a rack is slow because its hosts were busy.
NOISE = 0.03
#: Up to this share of slow pairs, noise alone is the explanation.
FLAT_SHARE = 0.08
#: Minimum share of slow pairs among pairs across racks.
FULL_SHARE = 0.4
#: Assumed share of pairs across racks in the random first rounds.
CROSSING_SHARE = 0.8
#: The search ends when the odds of each host's rack against its next best rack reach this value.
CERTAIN_ODDS = 1e3
#: The assignment must also be unchanged for this many rounds.
UNCHANGED_ROUNDS_MIN = 2
#: Log-likelihood ratio of one rack against two racks for a slow pair.
SLOW_GAIN = -3.0
#: At most one in this many hosts is tested per round; the others fill the uplinks.
TESTED = 8
ROUNDING = 1e-9
#: Maximum number of rounds, divided by log2 of the number of hosts.
ROUNDS_MAX = 10


@dataclass(frozen=True)
class Racks:
    """The result of a search.

    Attributes
    ----------
    numbers
        Rack number of each host, in order of first appearance.
    certainty
        The probability of the least certain host's rack.
    round_count, probe_count
        Number of measurement rounds and probes.
    """

    numbers: list[int]
    certainty: float
    round_count: int
    probe_count: int


def search(host_count: int, *, seed: int = 0) -> Generator[list[Pair], Sequence[float], Racks]:
    """Yield the pairs of each round, receive their rates by `send`, and return the racks.

    Equal rates lead to equal rounds, so every rank can run the search independently.

    Parameters
    ----------
    host_count
        Number of hosts, at least three: two hosts allow no comparison.
    seed
        Seed of the random choices.
    """
    draw = random.Random(seed)
    measured = _MeasuredRounds(host_count)
    log2 = math.ceil(math.log2(host_count))
    labels, odds, unchanged_rounds = [0] * host_count, np.full(host_count, math.inf), 0
    runners_up = list(labels)
    for number in range(ROUNDS_MAX * log2):
        is_random = number < 2 * log2 or len(set(labels)) == 1
        pairs = _matching(host_count, draw) if is_random else _crossing(labels, odds, runners_up, draw)
        measured.note(pairs, (yield pairs))
        if number < 2 * log2 - 1:
            continue
        before = labels
        labels, odds, runners_up = measured.racks(None if number < 2 * log2 else labels)
        unchanged_rounds = unchanged_rounds + 1 if labels == before else 0
        # The assignment is certain, and has been stable for some rounds.
        if unchanged_rounds >= UNCHANGED_ROUNDS_MIN and odds.min() >= math.log(CERTAIN_ODDS):
            break
    certainty = 1 / (1 + math.exp(-min(float(odds.min()), 700.0)))
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return Racks([numbers[label] for label in labels], certainty, len(measured.rounds), sum(map(len, measured.rounds)))


class _MeasuredRounds:
    """All rounds so far. A pair is slow relative to the median of the hosts' best rates."""

    def __init__(self, host_count: int) -> None:
        self.host_count = host_count
        self.rounds: list[list[Pair]] = []
        self.rates: list[NDArray[np.float64]] = []
        self.best = np.zeros(host_count)

    def note(self, pairs: list[Pair], rates: Sequence[float]) -> None:
        """Add the results of a round."""
        self.rounds.append(pairs)
        self.rates.append(np.asarray(rates, np.float64))
        for pair, rate in zip(pairs, rates, strict=True):
            for host in pair:
                self.best[host] = max(self.best[host], rate)

    def racks(self, labels: list[int] | None) -> tuple[list[int], NDArray[np.float64], list[int]]:
        """Return the likeliest racks, the log odds of each host's rack, and its rival; `labels` are the last result."""
        limit = SLOW_SHARE * float(np.median(self.best))
        slow = [rates < limit for rates in self.rates]
        total, count = sum(int(each.sum()) for each in slow), sum(len(each) for each in slow)
        if total <= FLAT_SHARE * count:
            # Full uplinks would slow most pairs, so each round of a host is evidence for a single rack.
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
            # Some assignment always fits noise best. But full uplinks slow most pairs across them.
            return self._one_rack(count - total)
        return found, *_odds(gains, found)

    def _one_rack(self, quick_count: int) -> tuple[list[int], NDArray[np.float64], list[int]]:
        """Return a single rack with all hosts; each pair that was not slow is evidence for it."""
        found = [0] * self.host_count
        return found, np.full(self.host_count, float(quick_count) / self.host_count), found


def _fullness(pairs: list[Pair], slow: NDArray[np.bool_], labels: list[int] | None) -> list[float]:
    """Return, per pair, the probability that it would have been slow across racks, because uplinks were full."""
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
            # Count the other pairs of its racks, without the pair itself. The average of the round counts as two pairs.
            shares.append((slow_count - own * int(was_slow) + 2 * usual) / (all_count - own + 2))
        found.append(max(shares))
    return found


def _likeliest(gains: NDArray[np.float64]) -> list[int]:
    """Return labels of hosts that maximize the sum of gains within racks locally: hosts move, then racks merge."""
    count = len(gains)
    labels = np.arange(count)
    for _ in range(count):
        for _ in range(count):
            has_moved = False
            for host in range(count):
                # An unused label is a new rack of one host, with gain 0.
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
    """Return, per host, the log odds of its rack against the next best or a new rack, and that rack."""
    count, array = len(labels), np.asarray(labels)
    found, others, runners_up = np.zeros(count), sorted(set(labels)), list(labels)
    for host in range(count):
        sums = np.bincount(array, weights=gains[host], minlength=count)
        own, is_alone = labels[host], (array == labels[host]).sum() == 1
        runner_up = max((label for label in others if label != own), key=lambda label: sums[label], default=own)
        best = -math.inf if runner_up == own else float(sums[runner_up])
        if not is_alone and best < 0:
            # The next best is a rack of its own, so only the evidence for the current rack counts.
            runner_up, best = own, 0.0
        found[host], runners_up[host] = sums[own] - best, runner_up
    return found, runners_up


def _matching(count: int, draw: random.Random) -> list[Pair]:
    """Pair all hosts at random; with an odd number, one host is left out."""
    hosts = list(range(count))
    draw.shuffle(hosts)
    return list(zip(hosts[::2], hosts[1::2], strict=False))


def _crossing(labels: list[int], odds: NDArray[np.float64], runners_up: list[int], draw: random.Random) -> list[Pair]:
    """Pair most hosts across racks, and the least certain hosts with a host of their rival rack."""
    racks = {rack: [host for host, label in enumerate(labels) if label == rack] for rack in dict.fromkeys(labels)}
    for hosts in racks.values():
        draw.shuffle(hosts)
    pairs: list[Pair] = []
    for host in sorted(range(len(labels)), key=lambda host: odds[host])[: 1 + len(labels) // TESTED]:
        own, runner_up = racks[labels[host]], racks[runners_up[host]]
        if host in own and set(runner_up) - {host}:
            own.remove(host)
            pairs.append((host, runner_up.pop()))
    left = list(racks.values())
    draw.shuffle(left)
    # The two largest racks give one host each, so that few hosts are left over.
    while len(left := sorted(filter(None, left), key=len, reverse=True)) > 1:
        pairs.append((left[0].pop(), left[1].pop()))
    if left:
        pairs += zip(left[0][::2], left[0][1::2], strict=False)
    return pairs
