"""
The age of unread records, from the history of a partition's end offset.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from pyspark_pykafka.metrics.end_offset_history import EndOffsetHistory


def history(*observations: tuple[int, float]) -> EndOffsetHistory:
    observed = EndOffsetHistory()
    for end, time in observations:
        observed.observe(end, time)
    return observed


def test_arrival_is_interpolated_between_two_observations() -> None:
    """
    Of ten records that arrived between two observations, the first is dated a tenth of the way from
    the earlier to the later observation, and the last at the later observation.
    """
    observed = history((100, 10.0), (110, 20.0))

    assert observed.arrival(100) == pytest.approx(11.0)
    assert observed.arrival(109) == pytest.approx(20.0)


def test_record_that_has_not_arrived_has_no_time() -> None:
    """
    The record at the end offset is not in the log yet.
    """
    assert history((100, 10.0)).arrival(100) is None


def test_idle_time_is_not_part_of_the_interpolation() -> None:
    """
    After an hour without records, a new record arrived between the last two observations.
    """
    observed = history((100, 0.0), (100, 1800.0), (100, 3600.0), (101, 3610.0))

    assert observed.arrival(100) == pytest.approx(3610.0)
    observed = history((100, 0.0), (100, 1800.0), (100, 3600.0), (110, 3610.0))
    assert observed.arrival(100) == pytest.approx(3601.0)


def test_older_record_is_at_least_as_old_as_the_history() -> None:
    """
    A record that was in the log before the first observation has the time of that observation.
    """
    observed = history((100, 10.0), (110, 20.0))

    assert observed.arrival(50) == 10.0
    assert observed.needs_arrival(50)
    assert not observed.needs_arrival(100)


def test_date_of_an_older_record_extends_the_history() -> None:
    """
    The timestamp of a record dates that record, and the records between it and the first
    observation.
    """
    observed = history((101, 1000.0))
    observed.record_arrival(50, 500.0)

    assert not observed.needs_arrival(50)
    assert observed.arrival(50) == 500.0
    assert observed.arrival(75) == pytest.approx(750.0)


def test_date_after_the_first_observation_is_ignored() -> None:
    """
    A producer's clock may be wrong: a record cannot be younger than the observation that saw it.
    """
    observed = history((101, 1000.0))
    observed.record_arrival(50, 2000.0)

    assert observed.arrival(50) == 1000.0
    assert not observed.needs_arrival(50)


def test_smaller_end_begins_a_new_history() -> None:
    """
    A topic that was recreated has another log, whose records are not dated by the old one.
    """
    observed = history((100, 10.0), (3, 20.0))

    assert observed.arrival(0) == 20.0


def test_late_observation_changes_nothing() -> None:
    """
    An end that was read earlier than the last one, but reported later, is not a truncation.
    """
    observed = history((100, 10.0), (110, 20.0))

    assert not observed.observe(105, 15.0)
    assert observed.arrival(100) == pytest.approx(11.0)


def test_history_is_set_back_with_the_clock() -> None:
    """
    More records at an earlier time show that the clock was set back by an hour. The ages of earlier
    records stay the same, except for the time between the last two observations.
    """
    observed = history((100, 7200.0), (110, 7260.0))

    assert observed.observe(120, 3720.0)

    assert observed.arrival(109) == pytest.approx(3720.0)
    assert observed.arrival(100) == pytest.approx(3720.0 - 54.0)
    assert observed.arrival(119) == pytest.approx(3720.0)
    assert observed.observe(130, 3730.0)
    assert observed.arrival(129) == pytest.approx(3730.0)


def test_memory_is_bounded_and_the_error_is_small() -> None:
    """
    After 10,000 observations few are kept, and each unread record is dated within 2 % of the
    time that the history covers.
    """
    random, observed, end, arrivals = Random(1), EndOffsetHistory(), 0, {}
    for second in range(10_000):
        for offset in range(end, end + random.randrange(1, 4)):
            arrivals[offset] = float(second)
            end = offset + 1
        observed.observe(end, float(second))

    assert len(observed._ends) <= 128
    assert all(a <= b for a, b in pairwise(observed._times))
    for offset in random.sample(range(end), 200):
        dated = observed.arrival(offset)
        assert dated is not None
        assert abs(dated - arrivals[offset]) < 200


def test_read_offsets_are_forgotten() -> None:
    """
    Observations that no unread record needs are dropped.
    """
    observed = history(*((10 * i, float(i)) for i in range(1, 50)))
    observed.forget_before(475)

    assert len(observed._ends) == 3
    assert observed.arrival(475) == pytest.approx(47.6)
