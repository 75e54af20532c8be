"""
The page in a real browser: at a desk and on a phone, in light and dark, by keyboard.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.support.page_data import MARKUP

if TYPE_CHECKING:
    from tests.browser.conftest import Browser, Site

pytestmark = pytest.mark.browser

TAB, ENTER, SPACE, RIGHT = "\ue004", "\ue007", " ", "\ue014"

#: Returns the visible texts whose contrast with their background is below that of WCAG 2.2, AA.
LOW_CONTRASTS = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (value) => {
    const c = value / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [parse(style.color), background(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([walker.currentNode.data, ratio]);
  }
  return low;
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_readable(browser: Browser, site: Site, width: int, dark: bool) -> None:
    """
    On a phone and at a desk, in light and dark: nothing is wider than the window, each text has
    enough contrast, and the browser reports no error.
    """
    browser.open(site.url, width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.run(LOW_CONTRASTS) == []
    assert browser.problems() == []
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 384) == dark


def test_low_contrast_is_found(browser: Browser, site: Site) -> None:
    """
    The check finds a planted text in grey on white.
    """
    browser.open(site.url)
    browser.run("document.querySelector('h2').style.setProperty('color', '#999999')")

    assert [text for text, _ in browser.run(LOW_CONTRASTS)] == ["flights-to-lake"]


def test_page_shows_queries_totals_errors_and_dead_letters(browser: Browser, site: Site) -> None:
    """
    The page shows queries with their state, lag and partitions, totals, errors and dead letters.
    """
    browser.open(site.url)
    first = browser.run("document.querySelector('.query').innerText")

    for text in ("flights-to-lake", "running", "357", "34 s", "4711", "1.5 s", "81,250"):
        assert text in first
    totals = browser.run("document.getElementById('totals').innerText").split("\n")
    assert totals[totals.index("Lost offsets") + 1] == "23"
    rows = browser.run(
        "[...document.querySelectorAll('.query:first-child tbody tr')].map((row) => "
        "[...row.children].map((cell) => cell.textContent))"
    )
    assert rows[0] == ["flights-0", "1,000,000", "1,000,340", "340", "34 s"]
    assert "FOREACH_BATCH_USER_FUNCTION_ERROR" in browser.run(
        "document.getElementById('errors').innerText"
    )
    assert "orders-0" in browser.run("document.getElementById('letters').innerText")


def test_markup_in_names_is_text(browser: Browser, site: Site) -> None:
    """
    A query's name or an error that looks like markup is shown as text, and creates no element.
    """
    browser.open(site.url)

    assert browser.run("document.images.length") == 0
    assert MARKUP in browser.run("document.querySelector('.query:nth-child(3) h2').textContent")
    assert MARKUP in browser.run("document.getElementById('errors').textContent")


def test_page_follows_the_data(browser: Browser, site: Site) -> None:
    """
    A new lag is shown without a reload, opened tables stay open, and the curve gets longer.
    """
    browser.open(site.url)
    browser.run("document.querySelector('summary').click()")
    site.lag = 9000

    browser.wait_for("document.querySelector('.query dd').textContent === '9,017'")
    assert browser.run("document.querySelector('details').open")
    browser.wait_for("document.querySelector('.curve').getAttribute('d').split('L').length > 2")


def test_lost_server_is_reported(browser: Browser, site: Site) -> None:
    """
    When the server is gone, the page says so in a status that screen readers announce.
    """
    browser.open(site.url)
    site.server.close()

    browser.wait_for(
        "document.querySelector('[role=status]').textContent.includes('does not answer')"
    )


def test_nothing_is_fetched_from_elsewhere(browser: Browser, site: Site) -> None:
    """
    Everything that the browser has loaded comes from the page's own server.
    """
    browser.open(site.url)
    urls = browser.run("performance.getEntriesByType('resource').map((each) => each.name)")

    assert urls
    assert {url for url in urls if not url.startswith(site.url)} <= {"data:,"}


def test_structure_for_screen_readers(browser: Browser, site: Site) -> None:
    """
    The page has one h1, headings without gaps, a language, a main part, named regions, tables with
    captions, and charts described in words.
    """
    browser.open(site.url)
    levels = browser.run(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((each) => each.checkVisibility())"
        ".map((each) => Number(each.tagName[1]))"
    )

    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert browser.run("document.documentElement.lang") == "en"
    assert browser.run("document.querySelectorAll('main').length") == 1
    assert browser.run("[...document.querySelectorAll('table')].every((each) => each.caption)")
    assert browser.run("[...document.querySelectorAll('th')].every((each) => each.scope)")
    label = browser.run("document.querySelector('svg').getAttribute('aria-label')")
    assert label.startswith("Lag of flights-to-lake since ")
    assert label.endswith("now 357, at most 357")
    unnamed = (
        "[...document.querySelectorAll('[role=region], section')].filter((each) => "
        "!each.hasAttribute('aria-label') && !each.hasAttribute('aria-labelledby')).length"
    )
    assert browser.run(unnamed) == 0


def test_page_can_be_used_by_keyboard(browser: Browser, site: Site) -> None:
    """
    The skip link comes first and leads to the main part; from there the keyboard changes the unit
    of the charts and opens the partitions, and the focus is visible and survives a refresh.
    """
    browser.open(site.url)

    assert browser.press(TAB).text == "Skip to the queries"
    assert browser.press(ENTER).get_attribute("id") == "main"
    assert browser.press(TAB).get_attribute("value") == "offsets"
    assert browser.press(RIGHT).get_attribute("value") == "seconds"
    assert "34 s" in browser.run("document.querySelector('svg').getAttribute('aria-label')")
    assert browser.press(TAB).tag_name == "summary"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press(ENTER)
    assert browser.run("document.querySelector('details').open")
    site.lag = 7000
    browser.wait_for("document.querySelector('.query dd').textContent === '7,017'")
    assert browser.run("document.activeElement.tagName") == "SUMMARY"
