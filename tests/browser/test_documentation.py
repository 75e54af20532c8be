"""
The documentation in a real browser, as `make docs` has built it.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.chrome import set_window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.conftest import Browser

pytestmark = pytest.mark.browser

SITE = Path(__file__).parents[2] / "site"
#: A plain page, one with a diagram, one with pictures, one with code and tables.
PAGES = ("", "architecture/exactly-once/", "proof/", "tutorial/", "guarantees/")


class QuietHandler(SimpleHTTPRequestHandler):
    """
    Serves files without a line in the log for each.
    """

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """
    Serve the site, and return its address.
    """
    assert (SITE / "index.html").is_file(), "build the site with: make docs"
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(SITE))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def requested(browser: Browser) -> list[str]:
    """
    Return the addresses that the browser has requested since the last call.
    """
    log = browser.driver.get_log("performance")  # type: ignore[no-untyped-call]
    messages = (json.loads(entry["message"])["message"] for entry in log)
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_loaded_from_outside(browser: Browser, url: str, page: str) -> None:
    """
    Whatever the scripts of the theme do, the browser requests files of the site only, and reports
    no error.
    """
    requested(browser)
    browser.driver.get(url + page)
    browser.wait_for("document.readyState === 'complete'")
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/'}))")

    addresses = requested(browser)
    assert addresses[0] == url + page
    assert len(addresses) > 3
    assert [
        address for address in addresses if not address.startswith((url, "data:", "blob:"))
    ] == []
    assert browser.problems() == []


SCHEME = "document.body.getAttribute('data-md-color-scheme')"
BRIGHTNESS = """(() => {
    const [red, green, blue] = getComputedStyle(document.body)
        .backgroundColor.match(/[0-9]+/g).map(Number);
    return (red + green + blue) / 3;
})()"""
RESULTS = "[...document.querySelectorAll('.md-search-result__link')]"


def test_the_search_finds_a_page(browser: Browser, url: str) -> None:
    """
    Words that a reader types are found in the pages' texts, a result leads to its page, and the
    words are highlighted there; nothing is loaded from outside.
    """
    browser.driver.get(url)
    browser.wait_for("document.readyState === 'complete'")
    requested(browser)
    browser.press("/")
    browser.wait_for("document.activeElement.matches('.md-search__input')")
    browser.press(*"isolate poison")
    browser.wait_for(f"{RESULTS}.length > 0")

    result = (
        f"{RESULTS}.find(link => link.pathname === '/failing/' && link.search.includes('poison'))"
    )
    browser.wait_for(f"{result} !== undefined")
    browser.run(f"{result}.click()")
    browser.wait_for("location.pathname === '/failing/' && document.readyState === 'complete'")
    browser.wait_for("document.querySelectorAll('mark').length > 0")
    marked = browser.run("document.querySelector('mark').textContent.toLowerCase()")
    assert marked in {"isolate", "poison", "isolate_poison"}
    assert [
        address for address in requested(browser) if not address.startswith((url, "data:"))
    ] == []
    assert browser.problems() == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_follow_the_system_and_the_switch(
    browser: Browser, url: str, *, dark: bool
) -> None:
    """
    The site is dark where the system is; the switch in its header changes that, for later pages
    too.
    """
    schemes = ("slate", "default") if dark else ("default", "slate")
    set_window(browser.driver, width=1280, height=800, dark=dark)
    browser.driver.get(url)
    browser.run("localStorage.clear()")
    browser.driver.refresh()
    browser.wait_for(f"{SCHEME} === '{schemes[0]}'")
    assert (browser.run(BRIGHTNESS) < 128) == dark

    browser.run(
        "document.querySelector('label.md-header__button[for^=__palette]:not([hidden])').click()"
    )
    browser.wait_for(f"{SCHEME} === '{schemes[1]}'")
    browser.wait_for(f"({BRIGHTNESS} < 128) === {str(not dark).lower()}")
    browser.driver.get(f"{url}tutorial/")
    browser.wait_for(f"{SCHEME} === '{schemes[1]}'")
    assert browser.problems() == []
