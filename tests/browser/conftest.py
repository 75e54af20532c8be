"""
A page with fixed data, and a headless Chromium to look at it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.chrome import headless_chrome, set_window
from tests.support.page_data import full_page

from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.ui.server import PageServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

SECONDS = 60


@dataclass
class Browser:
    """
    A browser with a window of a given size, in a light or dark colour scheme.
    """

    driver: Chrome

    def open(self, url: str, *, width: int = 1280, dark: bool = False) -> None:
        """
        Open the page, and wait until it shows its queries.
        """
        set_window(self.driver, width=width, height=800, dark=dark)
        self.driver.get(url)
        self.wait_for("document.querySelectorAll('.query').length > 0")

    def run(self, script: str) -> Any:
        """
        Return the value of an expression in the page.
        """
        return self.driver.execute_script(f"return {script}")

    def wait_for(self, script: str) -> None:
        """
        Wait until an expression in the page is true.
        """
        wait_until(lambda: None if self.run(script) else f"not yet: {script}", SECONDS)

    def press(self, *keys: str) -> WebElement:
        """
        Press keys at the focused element, and return the element that has the focus afterwards.
        """
        from selenium.webdriver import ActionChains

        actions = ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()
        return self.driver.switch_to.active_element

    def problems(self) -> list[str]:
        """
        Return the browser's log: errors of the script, refused loads.
        """
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    """
    One headless browser for all tests.
    """
    with headless_chrome() as driver:
        yield driver


@pytest.fixture
def browser(chrome: Chrome) -> Iterator[Browser]:
    """
    The browser, with an empty log.
    """
    opened = Browser(chrome)
    opened.problems()
    yield opened
    chrome.get("about:blank")


@dataclass
class Site:
    """
    A served page, whose data a test can change.
    """

    lag: int = 340

    def __post_init__(self) -> None:
        self.server = PageServer(
            lambda: full_page(time.time(), self.lag), "127.0.0.1", 0, seconds=1
        )

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture
def site() -> Iterator[Site]:
    """
    Serve a page whose data is read again every second.
    """
    opened = Site()
    yield opened
    opened.server.close()
