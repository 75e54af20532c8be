"""
Serves the page, its data and the metrics, with Python's own HTTP server.

Only GET and HEAD are supported, and nothing can be changed. A server on a loopback address accepts
only requests whose Host header is a loopback name. Otherwise a foreign web page could read the data
through a host name of its own that resolves to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import logging
import re
import socket
import sys
import threading
import time
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pykafka.errors import OptionsError, PykafkaError
from pyspark_pykafka.ui.lag_history import LagHistory
from pyspark_pykafka.ui.page_data import PageData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger("pyspark_pykafka")

REQUEST_SECONDS = 30
_MAX_PROBLEM_LENGTH = 300


class Content(NamedTuple):
    """
    A response: its media type, and its body.
    """

    media_type: str
    body: bytes


class PageServer:
    """
    Serves until it is closed, and reads the data from ``source`` every ``seconds`` seconds.

    ``metrics`` returns the content of ``/metrics``. If the source raises an error, the page shows
    the last data and the error: the text of a :class:`~pyspark_pykafka.errors.PykafkaError`, or
    only the class of another error. Port 0 chooses a free port. Raises
    :class:`~pyspark_pykafka.errors.OptionsError` if the server cannot listen on the address.
    """

    def __init__(
        self,
        source: Callable[[], PageData],
        host: str,
        port: int,
        *,
        seconds: float,
        metrics: Callable[[], Content] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._seconds = seconds
        self._metrics = metrics
        self._now = now
        self._history = LagHistory()
        self._data = PageData("nothing yet")
        self._problem: str | None = None
        self._read_at: float | None = None
        self._closed = threading.Event()
        self._server = _listen(host, port, self._content)
        self.port = int(self._server.server_port)
        self.url = f"http://{_in_url(host)}:{self.port}/"
        self._threads = [
            threading.Thread(target=target, name="pykafka-page", daemon=True)
            for target in (self._server.serve_forever, self._refresh_until_closed)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """
        Stop serving, and free the port.
        """
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def refresh(self) -> None:
        """
        Read the data once.
        """
        try:
            self._data = self._source()
            self._read_at = self._now()
            self._history.add(self._data, self._read_at)
        except PykafkaError as error:
            self._show_problem(str(error).split("\n", 1)[0][:_MAX_PROBLEM_LENGTH], None)
        except Exception as error:  # noqa: BLE001 (the thread reads again, whatever happened)
            self._show_problem(f"{type(error).__name__}; the log has the details", error)
        else:
            self._problem = None

    def _show_problem(self, problem: str, error: Exception | None) -> None:
        """
        Show a problem on the page, and log it once until the data can be read again.
        """
        if self._problem is None:
            logger.warning(
                "The data of the page cannot be read at the moment: %s", problem, exc_info=error
            )
        self._problem = problem

    def _refresh_until_closed(self) -> None:
        self.refresh()
        while not self._closed.wait(self._seconds):
            self.refresh()

    def _content(self, path: str) -> Content | None:
        """
        Return the response for a path, or None if the path does not exist.
        """
        if path == "/":
            return _PAGE.content
        if path == "/data.json":
            return Content("application/json", json.dumps(self._document()).encode())
        if path == "/metrics" and self._metrics is not None:
            return self._metrics()
        return None

    def _document(self) -> dict[str, Any]:
        document = self._data.to_json()
        for query in document["queries"]:
            query["history"] = list(self._history.points(query["id"]))
        return {
            **document,
            "time": self._now(),
            "read_at": self._read_at,
            "refresh_seconds": self._seconds,
            "problem": self._problem,
        }


class _Page:
    """
    The page's file, and a content security policy that allows only its own script and style.
    """

    @cached_property
    def content(self) -> Content:
        body = (files("pyspark_pykafka.ui") / "page.html").read_bytes()
        return Content("text/html; charset=utf-8", body)

    @cached_property
    def policy(self) -> str:
        text = self.content.body.decode()
        script, style = (_hash_of(text, tag) for tag in ("script", "style"))
        return (
            f"default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def _hash_of(text: str, tag: str) -> str:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert match is not None
    digest = hashlib.sha256(match[1].encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


_PAGE = _Page()


class _Handler(BaseHTTPRequestHandler):
    """
    Handles GET and HEAD requests; each server makes a subclass that provides the contents.
    """

    server_version = "pykafka"
    sys_version = ""
    timeout = REQUEST_SECONDS
    get_content: Callable[[str], Content | None]
    host_names: frozenset[str] | None = frozenset()

    def do_GET(self) -> None:
        """
        Send the content of the path.
        """
        content = self._respond()
        if content is not None:
            self.wfile.write(content.body)

    def do_HEAD(self) -> None:
        """
        Send the headers only.
        """
        self._respond()

    def _respond(self) -> Content | None:
        if not self._names_this_server():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Open the page at the server's address")
            return None
        content = type(self).get_content(self.path.partition("?")[0])
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content.media_type)
        self.send_header("Content-Length", str(len(content.body)))
        self.end_headers()
        return content

    def end_headers(self) -> None:
        """
        Add the headers that are common to all responses.
        """
        for name, value in _SAFE_HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", _PAGE.policy)
        super().end_headers()

    def _names_this_server(self) -> bool:
        if self.host_names is None:
            return True
        name = re.sub(r":\d+\Z", "", self.headers.get("Host", "")).lower()
        return name in self.host_names

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (the base's name)
        """
        Log requests at debug level.
        """
        logger.debug("page: %s", format % arguments)


_SAFE_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """
        Bind without HTTPServer's lookup of the host name.
        """
        TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 (the base's)
        """
        Log an error of a request; at debug level if the client has closed its connection.
        """
        is_closed = isinstance(sys.exception(), ConnectionError | TimeoutError)
        logger.log(
            logging.DEBUG if is_closed else logging.WARNING,
            "page: a request of %s failed",
            client_address,
            exc_info=True,
        )


class _ServerOnIPv6(_Server):
    address_family = socket.AF_INET6


def _listen(host: str, port: int, content: Callable[[str], Content | None]) -> _Server:
    handler: type[_Handler] = type("Handler", (_Handler,), {"get_content": staticmethod(content)})
    try:
        server = (_ServerOnIPv6 if ":" in host else _Server)((host, port), handler)
    except (OSError, OverflowError) as cause:
        msg = f"port is {port}, and {host}:{port} cannot be served: {cause}; use a free port"
        raise OptionsError((msg,)) from cause
    # The address decides, since many names and forms of an address are loopback, such as 127.1.
    handler.host_names = _host_names(host, str(server.server_address[0]))
    return server


def _host_names(host: str, address: str) -> frozenset[str] | None:
    """
    Return the host names that a server on a loopback address accepts.

    For any other address, return None, which accepts all names: clients may reach such a server by
    names that it does not know.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    if not (mapped or ip).is_loopback:
        return None
    server_hosts = {_in_url(host).lower(), _in_url(address).lower()}
    return frozenset({"localhost", "127.0.0.1", "[::1]", *server_hosts})


def _in_url(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (compared)
        return "localhost"
    return f"[{host}]" if ":" in host else host
