"""
The plan drawn from the seed: the query shapes of a round, its faults, and the driver of each query.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SOURCE, AT_LEAST_ONCE, EXACTLY_ONCE = "source", "at-least-once", "exactly-once"
CHAINED, CHANGING = "chained", "changing-log"
GROUP, ZOOKEEPER = "progress-group", "progress-zookeeper"

_STATELESS = ("plain", "repartition", "by-key", "union", "coalesce")
_STATEFUL = ("windowed", "complete", "join", "rate")

#: The query shapes that a round of each workload draws from.
SHAPES: dict[str, tuple[str, ...]] = {
    SOURCE: _STATELESS,
    AT_LEAST_ONCE: (*_STATELESS, *_STATEFUL),
    EXACTLY_ONCE: (*_STATELESS, *_STATEFUL),
    CHAINED: _STATELESS,
    GROUP: ("plain", "repartition", "coalesce"),
    ZOOKEEPER: ("plain", "repartition", "coalesce"),
    CHANGING: ("plain",),
}

#: One driver lives as long as the run, so that its resources can be compared; the other is killed.
STEADY, MORTAL = "steady", "mortal"

#: The share of a round, at its end, without faults; everything is drained afterwards.
QUIET_SHARE = 0.25

_FIRST_STRIKE_SECONDS = (3.0, 8.0)
_PAUSE_SECONDS = (1.0, 4.0)
_STRIKE_SECONDS = (4.0, 10.0)


@dataclass(frozen=True, slots=True)
class Strike:
    """
    One fault: its kind, the pause before it, how long it lasts, and a seed for its target.
    """

    kind: str
    pause: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """
    One round: a shape and a driver for each workload, and more faults than the time allows.
    """

    number: int
    seed: int
    shapes: dict[str, str]
    drivers: dict[str, str]
    strikes: tuple[Strike, ...]


def plan_round(seed: int, number: int, kinds: tuple[str, ...], seconds: float) -> RoundPlan:
    """
    Draw a round; the same seed and number give the same round.

    The kinds of faults are dealt from a shuffled deck, so that a run of several rounds uses all of
    them.
    """
    random = Random(f"{seed}/{number}")
    shapes = {name: random.choice(choices) for name, choices in SHAPES.items()}
    mortal = random.sample(sorted(SHAPES), k=len(SHAPES) // 2)
    drivers = {name: MORTAL if name in mortal else STEADY for name in SHAPES}
    return RoundPlan(number, seed, shapes, drivers, _strikes(random, seed, number, kinds, seconds))


def _strikes(
    random: Random, seed: int, number: int, kinds: tuple[str, ...], seconds: float
) -> tuple[Strike, ...]:
    budget = (1 - QUIET_SHARE) * seconds
    strikes: list[Strike] = []
    pause = random.uniform(*_FIRST_STRIKE_SECONDS)
    # As many strikes as fit if each is as short as possible; those beyond the end of the round are
    # not used.
    for kind in _deck(seed, number, kinds, count=int(budget / _STRIKE_SECONDS[0])):
        strikes.append(
            Strike(kind, pause, random.uniform(*_STRIKE_SECONDS), random.getrandbits(32))
        )
        pause = random.uniform(*_PAUSE_SECONDS)
    return tuple(strikes)


def _deck(seed: int, number: int, kinds: tuple[str, ...], count: int) -> list[str]:
    """
    Return the kinds of a round, from a shuffled deck that the rounds go through one after another.
    """
    cards: list[str] = []
    index = number * CARDS_PER_ROUND
    while len(cards) < count:
        deck = list(kinds)
        Random(f"{seed}/deck/{index // len(kinds)}").shuffle(deck)
        cards.append(deck[index % len(kinds)])
        index += 1
    return cards


#: The number of kinds that a round is expected to use; the next round continues after them in the
#: deck.
CARDS_PER_ROUND = 5
