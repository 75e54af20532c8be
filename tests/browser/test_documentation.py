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
    assert [each for each in addresses if not each.startswith((url, "data:", "blob:"))] == []
    assert browser.problems() == []
