"""
The shapes, drivers and faults of a round of the soak, which the seed determines.
"""

from __future__ import annotations

from tests.soak.nemeses import KINDS
from tests.soak.plan import CARDS_PER_ROUND, MORTAL, SHAPES, STEADY, plan_round

SECONDS = 120.0
ALL = tuple(KINDS)


def test_same_seed_gives_the_same_round() -> None:
    """
    Shapes, drivers and faults follow from the seed and the number of the round.
    """
    assert plan_round(7, 3, ALL, SECONDS) == plan_round(7, 3, ALL, SECONDS)
    assert plan_round(7, 3, ALL, SECONDS) != plan_round(8, 3, ALL, SECONDS)


def test_rounds_go_through_all_faults() -> None:
    """
    The rounds draw from one shuffled deck, so that no kind of fault is left out for long.
    """
    rounds = -(-len(ALL) // CARDS_PER_ROUND)
    struck = {
        strike.kind
        for number in range(rounds)
        for strike in plan_round(1, number, ALL, SECONDS).strikes[:CARDS_PER_ROUND]
    }

    assert struck == set(ALL)


def test_every_shape_is_drawn() -> None:
    """
    Within a hundred rounds, each workload has run each of its shapes, and run on both drivers.
    """
    plans = [plan_round(1, number, ALL, SECONDS) for number in range(100)]

    for workload, shapes in SHAPES.items():
        assert {plan.shapes[workload] for plan in plans} == set(shapes)
        assert {plan.drivers[workload] for plan in plans} == {STEADY, MORTAL}
