"""
The responses of the page's server, and the clients that it rejects.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import re
import socket
import struct
import threading
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.page_data import MARKUP, full_page

from pyspark_pykafka.errors import BrokerUnavailableError
from pyspark_pykafka.testing.waiting import wait_until
from pyspark_pykafka.ui.server import Content, PageServer, _host_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_pykafka.ui.page_data import PageData

HOUR, SECONDS = 3600.0, 30.0
PAGE = (files("pyspark_pykafka.ui") / "page.html").read_text()


@pytest.fixture
def serve() -> Iterator[Callable[..., PageServer]]:
    """
    Return a function that starts a server on loopback, which reads data only on demand.
    """
    servers: list[PageServer] = []

    def start(source: Callable[[], PageData], **arguments: Any) -> PageServer:
        servers.append(PageServer(source, "127.0.0.1", 0, **{"seconds": HOUR, **arguments}))
        servers[-1].refresh()
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def request(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def page() -> PageData:
    return full_page(1000.0)


def test_page_and_data(serve: Callable[..., PageServer]) -> None:
    """
    The page is at /, and its data at /data.json: queries with their lag, errors, dead letters.
    """
    server = serve(page, now=lambda: 2000.0)

    response, body = request(server, "/?x=1")
    assert (response.status, body.decode()) == (200, PAGE)
    document = json.loads(request(server, "/data.json")[1])
    assert (document["time"], document["problem"], document["refresh_seconds"]) == (
        2000,
        None,
        HOUR,
    )
    first = document["queries"][0]
    assert (first["name"], first["lag"], first["lag_seconds"]) == ("flights-to-lake", 357, 34.0)
    assert first["history"][-1] == [2000.0, 357, 34.0]
    assert document["queries"][2]["lag"] is None
    assert [error["count"] for error in document["errors"]] == [2, 8]


def test_other_paths_and_methods(serve: Callable[..., PageServer]) -> None:
    """
    Other paths are not found, HEAD has no body, and methods that could change something are
    rejected.
    """
    server = serve(page)

    assert request(server, "/page.html")[0].status == 404
    assert request(server, "/metrics")[0].status == 404
    assert request(server, "/", "HEAD")[1] == b""
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert request(server, "/", method)[0].status == 501


def test_metrics_are_served(serve: Callable[..., PageServer]) -> None:
    """
    A server with metrics serves them to Prometheus, with their media type.
    """
    server = serve(page, metrics=lambda: Content("text/plain; version=1.0.0", b"x 1\n"))

    response, body = request(server, "/metrics")
    assert (response.getheader("Content-Type"), body) == ("text/plain; version=1.0.0", b"x 1\n")


def test_only_the_pages_own_script_and_style_are_allowed(serve: Callable[..., PageServer]) -> None:
    """
    The Content-Security-Policy has the hashes of the page's script and style, and lets the page
    fetch from its own server only.
    """
    policy = request(serve(page), "/")[0].getheader("Content-Security-Policy") or ""

    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy


def test_page_names_no_other_address() -> None:
    """
    The page loads nothing from elsewhere: its only address is the name of the SVG namespace.
    """
    assert re.findall(r"\w+://[^\"' ]*", PAGE) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", PAGE) == ["data:,", "#main", "data.json"]
    assert "innerHTML" not in PAGE


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:80", ""])
def test_foreign_host_names_of_loopback_are_rejected(
    serve: Callable[..., PageServer], name: str
) -> None:
    """
    A page from elsewhere whose name resolves to 127.0.0.1 cannot read the data.
    """
    server = serve(page)

    assert request(server, "/data.json", Host=name)[0].status == 421
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "LOCALHOST:1"):
        assert request(server, "/data.json", Host=host)[0].status == 200


@pytest.mark.parametrize("host", ["127.1", "LOCALHOST"])
def test_each_form_of_a_loopback_address_rejects_foreign_names(host: str) -> None:
    """
    The address on which the server listens decides, not the text of `host`.
    """
    server = PageServer(page, host, 0, seconds=HOUR)
    try:
        for name, status in (("evil.example", 421), ("localhost", 200), (f"{host}:80", 200)):
            assert request(server, "/data.json", Host=name)[0].status == status
    finally:
        server.close()


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [("::1", True), ("::ffff:127.0.0.1", True), ("::", False), ("fe80::1%eth0", False)],
)
def test_addresses_of_ipv6(address: str, *, is_loopback: bool) -> None:
    """
    An address of IPv6 can be loopback in two forms; as a host name it stands in brackets.
    """
    names = _host_names(address, address)

    assert (names is not None) is is_loopback
    assert names is None or f"[{address}]" in names


def test_client_that_closes_its_connection_is_no_error(
    serve: Callable[..., PageServer],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """
    A reset connection leaves one line at level debug, and nothing on the driver's stderr.
    """
    closed = threading.Event()

    def metrics() -> Content:
        assert closed.wait(SECONDS)
        return Content("text/plain", bytes(10_000_000))

    server = serve(page, metrics=metrics)
    with caplog.at_level(logging.DEBUG, "pyspark_pykafka"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        closed.set()
        wait_until(lambda: None if "failed" in caplog.text else "the request goes on", SECONDS)

    (record,) = [log_record for log_record in caplog.records if "failed" in log_record.message]
    assert record.levelno == logging.DEBUG
    assert "Traceback" not in capfd.readouterr().err


def test_other_addresses_may_have_any_name() -> None:
    """
    A server on all addresses, which the user must choose, accepts any host name.
    """
    server = PageServer(page, "0.0.0.0", 0, seconds=HOUR)  # noqa: S104
    try:
        assert server.url == f"http://localhost:{server.port}/"
        assert request(server, "/data.json", Host="driver-17.cluster")[0].status == 200
    finally:
        server.close()


def test_outage_is_shown_beside_the_last_data(serve: Callable[..., PageServer]) -> None:
    """
    When the brokers do not respond, the page has the error in one line and the last data;
    afterwards, the error is gone.
    """
    failing = [False]

    def source() -> PageData:
        if failing[0]:
            msg = f"no broker\n{'at x ' * 100}"
            raise BrokerUnavailableError(msg)
        return page()

    server = serve(source, now=lambda: 1000.0)
    failing[0] = True
    server.refresh()
    document = json.loads(request(server, "/data.json")[1])
    assert document["problem"].endswith("no broker")
    assert document["read_at"] == 1000.0
    assert len(document["queries"]) == 3

    failing[0] = False
    server.refresh()
    assert json.loads(request(server, "/data.json")[1])["problem"] is None


def test_page_is_refreshed_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    """
    An error that the connector does not know is logged once with its traceback, and shown by its
    class, which has no text of records or credentials. The page goes on.
    """
    failing = threading.Event()
    failing.set()

    def source() -> PageData:
        if failing.is_set():
            msg = "secret"
            raise OverflowError(msg)
        return page()

    def differs(expected: str | None) -> str | None:
        problem = json.loads(request(server, "/data.json")[1])["problem"]
        return None if problem == expected else f"the problem is {problem}"

    server = PageServer(source, "127.0.0.1", 0, seconds=0.01)
    try:
        wait_until(lambda: differs("OverflowError; the log has the details"), SECONDS)
        failing.clear()
        wait_until(lambda: differs(None), SECONDS)
    finally:
        server.close()
    (record,) = [
        log_record for log_record in caplog.records if "cannot be read" in log_record.message
    ]
    assert record.exc_info


def test_history_is_bounded(serve: Callable[..., PageServer]) -> None:
    """
    After 5,000 refreshes a query has at most 600 points, from the first to the last.
    """
    clock = iter(range(10_000))
    server = serve(page, now=lambda: float(next(clock)))
    for _ in range(5000):
        server.refresh()

    history = json.loads(request(server, "/data.json")[1])["queries"][0]["history"]
    assert len(history) <= 600
    times = [point[0] for point in history]
    assert times == sorted(times)
    assert times[0] <= 1
    assert times[-1] >= 5000


def test_names_are_data_and_no_markup(serve: Callable[..., PageServer]) -> None:
    """
    A query's name that looks like markup stays text in a JSON document.
    """
    response, body = request(serve(page), "/data.json")

    assert json.loads(body)["queries"][2]["name"] == MARKUP
    assert response.getheader("Content-Type") == "application/json"
    assert response.getheader("X-Content-Type-Options") == "nosniff"
