"""How evenly a layout spreads measured keys over its subtasks, and which of many layouts spread them best.

What a layout does with other keys of the same weights is estimated by giving the keys random hashes, many times.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from flinkstate.hashing.key_groups import UPPER_BOUND_MAX_PARALLELISM, key_group_prefix_bytes, ranges
from stateferry.look.balance import kernels
from stateferry.look.balance.kernels import Weights
from stateferry.look.balance.key_weights import KeyWeights

# A search looks at about so many (key, layout) pairs, and at no fewer layouts than this.
_MOST_WORK = 2_600_000_000
LEAST_CANDIDATES = 512
_TRIALS = 200
# A difference of so much of the mean doesn't matter.
_AS_GOOD = 0.01
# So much of a gain doesn't matter, if a layout nearer to today's has the rest of it.
_OF_THE_GAIN = 0.1
# So many of the heaviest keys are drawn one by one; the sums of the others are drawn from a normal distribution.
_DRAWN = 20_000
_SEED = 20_240_229


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupLayout:
    """A parallelism and a max parallelism."""

    parallelism: int
    max_parallelism: int


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """What each subtask of a layout gets, in one measure."""

    layout: KeyGroupLayout
    by_subtask: npt.NDArray[np.int64]

    @property
    def worst(self) -> int:
        return int(self.by_subtask.max())

    @property
    def mean(self) -> float:
        return float(self.by_subtask.mean())

    @property
    def worst_over_mean(self) -> float:
        return self.worst / self.mean if self.mean else 1.0

    @property
    def idle(self) -> int:
        """The number of subtasks without any load."""
        return int((self.by_subtask == 0).sum())


@dataclass(frozen=True, slots=True)
class Chance:
    """How the worst over mean falls between two layouts.

    `expected_before` and `expected_after` are what keys of the same weights have in them on average. So the fall has
    three parts: how unlucky today's keys are in the layout before, what any keys would gain, and how lucky today's keys
    are in the layout after.
    """

    before: float
    expected_before: float
    expected_after: float
    after: float

    @property
    def bad_luck_before(self) -> float:
        return self.before - self.expected_before

    @property
    def systematic(self) -> float:
        return self.expected_before - self.expected_after

    @property
    def good_luck_after(self) -> float:
        return self.expected_after - self.after


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What a max parallelism does at a given parallelism; the bytes are those of offsets and of key group numbers."""

    layout: KeyGroupLayout
    worst_over_mean: float
    idle: int
    empty_key_groups: int
    offset_bytes: int
    prefix_bytes: int


class LayoutSearch:
    """Spreads the measured keys of an operator over layouts."""

    def __init__(self, weights: KeyWeights) -> None:
        self.weights = weights
        self.today = KeyGroupLayout(weights.operator.parallelism, weights.operator.max_parallelism)

    @cached_property
    def _key_weights(self) -> Weights:
        return self.weights.key_weights

    @cached_property
    def _heaviest(self) -> Weights:
        weights = self._key_weights
        return weights if len(weights) <= _DRAWN else np.partition(weights, -_DRAWN)[-_DRAWN:]

    def groups(self, measure: str, max_parallelism: int) -> Weights:
        """Returns the load of each key group; at the present max parallelism it is what was read, else computed."""
        if max_parallelism == self.today.max_parallelism:
            return self.weights.groups[measure]
        keys = self.weights.keys
        own = self._key_weights if measure == self.weights.measure else keys.weights(measure)
        groups = np.empty(max_parallelism, np.int64)
        kernels.spread(keys.hashes, own, max_parallelism, groups)
        return groups

    def loads(self, layout: KeyGroupLayout, measure: str | None = None) -> Loads:
        """Returns the load of each subtask."""
        groups = self.groups(measure or self.weights.measure, layout.max_parallelism)
        starts = [owned.start for owned in ranges(layout.max_parallelism, layout.parallelism)]
        return Loads(layout, np.add.reduceat(groups, starts))

    def all_loads(self, layout: KeyGroupLayout) -> dict[str, Loads]:
        """Returns the loads in every measure that is known of all keys."""
        known = layout.max_parallelism == self.today.max_parallelism or self.weights.sampled == 1
        return {
            measure: self.loads(layout, measure)
            for measure in (self.weights.groups if known else [self.weights.measure])
        }

    def candidates(self, least: int, most: int, parallelisms: Sequence[int]) -> Weights:
        """Returns the max parallelisms of a range that the search looks at: all of them, unless there are many keys.

        Of many they are the present one and those next above it, powers of two, multiples of the parallelisms, and
        others at equal distances.
        """
        room = max(_MOST_WORK // max(len(self.weights.keys), 1), LEAST_CANDIDATES)
        if self.weights.why_fixed is not None:
            return np.array([self.today.max_parallelism])
        if most - least < room:
            return np.arange(least, most + 1)
        first = max(least, self.today.max_parallelism)
        chosen = dict.fromkeys([first, *(1 << power for power in range(16))])
        for parallelism in parallelisms:
            chosen |= dict.fromkeys(-(-first // parallelism) * parallelism << power for power in range(3))
        chosen |= dict.fromkeys(range(first, first + room // 2))
        chosen |= dict.fromkeys(np.linspace(least, most, room).astype(int).tolist())
        fitting = [one for one in chosen if least <= one <= most]
        return np.array(sorted(fitting[:room]))

    def worst_and_idle(self, maxes: Weights, parallelisms: Sequence[int]) -> tuple[Weights, Weights]:
        """Returns the largest load and how many subtasks are idle, by max parallelism and parallelism; -1: can't be."""
        shape = (len(maxes), len(parallelisms))
        worst, idle = np.empty(shape, np.int64), np.empty(shape, np.int64)
        columns = np.array(parallelisms, np.int64)
        if self.weights.why_fixed is not None:
            for column, parallelism in enumerate(parallelisms):
                fits = parallelism <= self.today.max_parallelism
                loads = self.loads(KeyGroupLayout(parallelism, self.today.max_parallelism)) if fits else None
                worst[:, column], idle[:, column] = (loads.worst, loads.idle) if loads else (-1, -1)
            return worst, idle
        threads = os.cpu_count() or 1
        slices = [slice(part, None, 4 * threads) for part in range(4 * threads)]

        def search(part: slice) -> None:
            own = np.ascontiguousarray(maxes[part])
            found = np.empty((2, len(own), len(columns)), np.int64)
            room = np.empty(UPPER_BOUND_MAX_PARALLELISM, np.int64)
            keys = self.weights.keys.hashes, self._key_weights
            kernels.spread_over_layouts(*keys, own, columns, room, found[0], found[1])
            worst[part], idle[part] = found

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(search, slices))
        return worst, idle

    def flattest(self, maxes: Weights, worst: Weights, parallelisms: Sequence[int]) -> list[KeyGroupLayout | None]:
        """Returns for each parallelism the layout nearest to today's of those whose worst load is nearly the smallest.

        That is, but for a tenth of what the smallest one gains, or 1 % of the mean. A max parallelism above today's
        comes before one below, which would leave less room to grow.
        """
        today, total = self.today.max_parallelism, self.weights.total
        order = np.lexsort((np.abs(maxes - today), maxes < today))
        found: list[KeyGroupLayout | None] = []
        for column, parallelism in enumerate(parallelisms):
            possible = order[worst[order, column] >= 0]
            if not len(possible):
                found.append(None)
                continue
            loads = worst[possible, column]
            least = int(loads.min())
            before = self.loads(KeyGroupLayout(parallelism, today)).worst if parallelism <= today else least
            good = possible[loads <= least + max(_AS_GOOD * total / parallelism, _OF_THE_GAIN * (before - least))]
            found.append(KeyGroupLayout(parallelism, int(maxes[good[0]])))
        return found

    def least_possible(self, parallelism: int) -> float:
        """Returns a bound below which no layout's worst load can be.

        That is the mean, the heaviest key, and by the pigeonhole principle: of the n * parallelism + 1 heaviest keys
        some subtask gets n + 1, which weigh at least as much as the n + 1 lightest of them.
        """
        total = self.weights.total
        mean = total / parallelism
        if self.weights.why_no_keys is not None:
            return mean
        heavy = np.sort(self._heaviest)[::-1]
        most = min((len(heavy) - 1) // parallelism, _DRAWN // parallelism)
        sums = np.append(0, np.cumsum(heavy[: most * parallelism + 1]))
        bounds = [float(sums[n * parallelism + 1] - sums[n * parallelism - n]) for n in range(most + 1) if len(heavy)]
        return max(mean, *bounds) if bounds else mean

    def expected(self, layout: KeyGroupLayout) -> float:
        """Returns the mean worst over mean of this layout if the keys' hashes were random."""
        weights = self._key_weights
        total = float(weights.sum())
        if not total:
            return 1.0
        draws = np.random.default_rng(_SEED)
        heavy = self._heaviest
        rest, squares = total - float(heavy.sum()), _squares(weights) - _squares(heavy)
        sizes = np.array([owned.size for owned in ranges(layout.max_parallelism, layout.parallelism)])
        shares = sizes / layout.max_parallelism
        spread = np.sqrt(max(squares, 0.0) * shares * (1 - shares))
        worst = 0.0
        for _ in range(_TRIALS):
            groups = draws.integers(0, layout.max_parallelism, len(heavy))
            loads = np.bincount(groups * layout.parallelism // layout.max_parallelism, heavy, layout.parallelism)
            worst += float((loads + rest * shares + spread * draws.standard_normal(layout.parallelism)).max())
        return worst / _TRIALS / (total / layout.parallelism)

    def chance(self, before: KeyGroupLayout, after: KeyGroupLayout) -> Chance:
        """Says how much of what the layout after is better by is systematic, and how much luck."""
        found = [self.loads(layout).worst_over_mean for layout in (before, after)]
        return Chance(found[0], self.expected(before), self.expected(after), found[1])

    def steady(self, parallelism: int) -> KeyGroupLayout | None:
        """Returns the layout of the least max parallelism from today's on in which all subtasks have as many groups."""
        most = -(-self.today.max_parallelism // parallelism) * parallelism
        return KeyGroupLayout(parallelism, most) if most <= UPPER_BOUND_MAX_PARALLELISM else None

    def curve(self, parallelism: int, *more: int) -> tuple[CurvePoint, ...]:
        """Returns what the number of key groups does at this parallelism: of powers of two, today's, and others."""
        powers = (1 << power for power in range(16))
        wanted = {one for one in (*powers, self.today.max_parallelism, *more) if one >= max(parallelism, 16)}
        fixed = self.weights.why_fixed is not None
        return tuple(
            self._point(KeyGroupLayout(parallelism, most))
            for most in sorted(wanted)
            if not fixed or most == self.today.max_parallelism
        )

    def _point(self, layout: KeyGroupLayout) -> CurvePoint:
        loads, most = self.loads(layout), layout.max_parallelism
        empty = int((self.groups(self.weights.measure, most) == 0).sum())
        rows = int(self.weights.groups["rows"].sum())
        return CurvePoint(
            layout, loads.worst_over_mean, loads.idle, empty, 8 * most, rows * key_group_prefix_bytes(most)
        )


def _squares(weights: Weights) -> float:
    own = weights.astype(np.float64)
    return float(own @ own)
