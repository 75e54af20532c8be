"""
The data of a page with everything it can show: queries in each state, long names, text that looks
like markup.
"""

from __future__ import annotations

from pyspark_pykafka.ui.page_data import (
    PageData,
    PageDeadLetters,
    PageError,
    PagePartition,
    PageQuery,
)

MARKUP = "<img src=x onerror=alert(1)>"


def partitions(topic: str, lags: list[int | None]) -> tuple[PagePartition, ...]:
    return tuple(
        PagePartition(
            topic,
            str(number),
            1_000_000 + number,
            None if lag is None else 1_000_000 + number + lag,
            lag,
            None if lag is None else lag / 10,
        )
        for number, lag in enumerate(lags)
    )


def full_page(now: float, lag: int = 340) -> PageData:
    """
    Return the page's data at the time ``now``; ``lag`` is that of the first query's partition 0.
    """
    running = PageQuery(
        "q1",
        "flights-to-lake",
        "running",
        partitions("flights", [lag, 0, 12, 5]),
        batch=4711,
        batch_seconds=1.52,
        rows_per_second=81_250.0,
        replays=1,
        lost=0,
        dead_letters=3,
        failures=2,
        last_event=now - 2,
    )
    failed = PageQuery(
        "q2",
        "a_query_with_a_very_long_name_that_has_no_place_to_break_at_all_" * 2,
        "failed",
        partitions("orders.eu-west-1.production.with-a-long-name", [125_000, 90_000]),
        batch=12,
        batch_seconds=300.0,
        rows_per_second=0.0,
        replays=7,
        lost=23,
        dead_letters=0,
        failures=8,
        last_event=now - 7200,
    )
    recorded = PageQuery(
        "q3", MARKUP, "recorded", (PagePartition("t", "", None, None, None, None),)
    )
    return PageData(
        "driver program",
        (running, failed, recorded),
        (
            PageError("flights-to-lake", 2, "FOREACH_BATCH_USER_FUNCTION_ERROR"),
            PageError(failed.name, 8, f"ValueError: {MARKUP} " + "x" * 120),
        ),
        (
            PageDeadLetters("flights", "1", 3, "flights-to-lake"),
            PageDeadLetters("orders", "0", 1, f"builtins.ValueError: {MARKUP}"),
        ),
    )
