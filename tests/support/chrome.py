"""
A headless Chromium, with windows of a given size in a light or dark colour scheme.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "driver": ("chromedriver",),
}


class NoBrowserError(RuntimeError):
    """
    Chromium or its driver is not installed.
    """


@contextmanager
def headless_chrome() -> Iterator[Chrome]:
    """
    Start a browser that logs errors and requests of pages, and end it afterwards.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _find("chromium")
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        # Chromium has no sandbox for root, and containers run as root.
        arguments.append("--no-sandbox")
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(_find("driver")))
    try:
        yield driver
    finally:
        driver.quit()


def set_window(driver: Chrome, *, width: int, height: int, dark: bool, scale: int = 1) -> None:
    """
    Set the window's size and the system's colour scheme; a narrow window imitates a phone.
    """
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def _find(kind: str) -> str:
    for name in _PROGRAMS[kind]:
        path = shutil.which(name)
        if path is not None:
            return path
    msg = f"no {' or '.join(_PROGRAMS[kind])}: install Debian's chromium and chromium-driver"
    raise NoBrowserError(msg)
