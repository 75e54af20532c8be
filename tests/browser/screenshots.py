"""
Makes the pictures of the documentation: the page of `pykafka ui`, and the demo in a terminal.

    make screenshots

The page shows the made-up queries below. The demo runs as in `make demo`, and its picture shows
what it printed.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.chrome import headless_chrome, set_window

from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.ui.page_data import (
    PageData,
    PageDeadLetters,
    PageError,
    PagePartition,
    PageQuery,
)
from pyspark_pykafka.ui.server import PageServer

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "screenshots"
#: Width and height of the window, and whether it is dark.
PAGES = {
    "page-light": (1100, 820, False),
    "page-dark": (1100, 820, True),
    "page-phone": (390, 820, False),
}
REFRESHES = 120
SECONDS_BETWEEN_REFRESHES = 10.0
PAGE_SECONDS = 60.0
TERMINAL_COLUMNS = 88


def main() -> None:
    """
    Make all pictures, or only those that ``--only`` names.
    """
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument("--only", choices=["page", "demo"], help="default: both")
    only = parser.parse_args().only
    FOLDER.mkdir(exist_ok=True)
    if only != "demo":
        photograph_page()
    if only != "page":
        record_demo()


def photograph_page() -> None:
    """
    Photograph the page after 20 minutes of its own time, on each kind of screen.
    """
    refreshes = count()
    started_at = time.time() - REFRESHES * SECONDS_BETWEEN_REFRESHES
    clock = {"now": started_at}

    def data() -> PageData:
        clock["now"] = started_at + next(refreshes) * SECONDS_BETWEEN_REFRESHES
        return page_data(clock["now"] - started_at, clock["now"])

    server = PageServer(data, "127.0.0.1", 0, seconds=3600, now=lambda: clock["now"])
    with closing(server), headless_chrome() as driver:
        for _ in range(REFRESHES):
            server.refresh()
        for name, (width, height, dark) in PAGES.items():
            set_window(driver, width=width, height=height, dark=dark, scale=1)
            driver.get(server.url)
            wait_until(lambda: None if has_queries(driver) else "the page is empty", PAGE_SECONDS)
            driver.save_screenshot(str(FOLDER / f"{name}.png"))


def has_queries(driver: Chrome) -> bool:
    return bool(driver.execute_script("return document.querySelectorAll('.query').length"))


def page_data(seconds: float, now: float) -> PageData:
    """
    Return the data of two queries some seconds after the first refresh: one has just caught up
    after a slow micro-batch, and the other has a failing record.
    """
    backlog = max(0, round(9_000 * math.sin(seconds / 420) - 2_000))
    lags = [backlog // 2, backlog // 3, 140 + round(40 * math.sin(seconds / 60))]
    flights = PageQuery(
        id="flights",
        name="flights-to-lake",
        state="running",
        partitions=tuple(_partition("flights", *numbered_lag) for numbered_lag in enumerate(lags)),
        batch=4711,
        batch_seconds=1.5,
        rows_per_second=5_200.0,
        replays=1,
        lost=0,
        dead_letters=3,
        failures=1,
        last_event=now - 2,
    )
    orders = PageQuery(
        id="orders",
        name="orders-to-postgres",
        state="running",
        partitions=tuple(_partition("orders", number, 0) for number in range(2)),
        batch=182,
        batch_seconds=0.6,
        rows_per_second=310.0,
        replays=0,
        lost=0,
        dead_letters=0,
        failures=0,
        last_event=now - 1,
    )
    return PageData(
        "driver program",
        (flights, orders),
        (PageError("flights-to-lake", 1, "FOREACH_BATCH_USER_FUNCTION_ERROR"),),
        (PageDeadLetters("flights", "1", 3, "flights-to-lake"),),
    )


def _partition(topic: str, number: int, lag: int) -> PagePartition:
    position = 1_204_000 + 7_000 * number
    return PagePartition(topic, str(number), position, position + lag, lag, lag / 600)


def record_demo() -> None:
    """
    Run the demo, and draw the terminal as it was at the end.
    """
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console

    sys.path.insert(0, str(ROOT / "examples"))
    import demo_screen

    # Not a terminal: a live display is recorded once, as it was at its end.
    console = Console(record=True, force_terminal=False, width=TERMINAL_COLUMNS)
    demo_screen.console = console
    # The demo takes the console from demo_screen when it is imported.
    import demo

    sys.argv = ["make demo"]
    console.print("$ make demo")
    demo.main()
    # Without the font that rich loads from a CDN.
    picture = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(FOLDER / "demo.svg"), title="make demo", code_format=picture)


if __name__ == "__main__":
    main()
