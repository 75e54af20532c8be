"""
One request to one server of a schema registry over HTTP or HTTPS.

Every request has its own connection: schemas are cached, so requests are few, and forked processes
inherit no connection.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from pyspark_pykafka.errors import AuthenticationError, AuthorizationError, TlsError
from pyspark_pykafka.registry.connection import BoundedConnection
from pyspark_pykafka.registry.errors import RegistryUnavailableError, SchemaRegistryError

if TYPE_CHECKING:
    from pyspark_pykafka.options import RegistryOptions
    from pyspark_pykafka.retry import Deadline

#: A larger response is an error: no column's schema is that large.
MAX_RESPONSE_BYTES = 16 << 20

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_CONTENT_TYPE}, application/json"
_REDIRECTS = frozenset({301, 302, 307, 308})
_MAX_REDIRECTS = 3
# The retriable statuses besides server errors: request timeout, too early, too many requests.
_TRANSIENT = frozenset({408, 425, 429})
_CHUNK_BYTES = 1 << 16
_MAX_URL_LENGTH = 200
#: The minimum timeout of a request, however near the deadline is.
MIN_SECONDS = 0.1


class Request(NamedTuple):
    """
    A request to a registry: ``path`` is appended to its URL and is already percent-encoded;
    ``body`` is sent as JSON unless it is None.

    With ``expects_json`` a response that is not JSON, such as a proxy's page, is a failure.
    """

    method: str
    path: str
    body: Any = None
    expects_json: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """
    A registry's response; ``document`` is its parsed JSON, or None if it is not JSON.
    """

    status: int
    text: str
    document: Any
    headers: dict[str, str]

    @property
    def error_code(self) -> int:
        """
        The registry's own error code, such as 40403, or 0.
        """
        code = self.document.get("error_code") if isinstance(self.document, dict) else None
        return code if isinstance(code, int) else 0

    @property
    def message(self) -> str:
        """
        The registry's error message, or the reason phrase of the HTTP status.
        """
        error = self.document if isinstance(self.document, dict) else {}
        text = error.get("message") or error.get("title")
        return str(text)[:500] if text else http.client.responses.get(self.status, "no reason")


class HttpClient:
    """
    Sends single requests, with the credentials and certificates of the options.
    """

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._authorization = _authorization(options)

    def exchange(self, base: str, request: Request, deadline: Deadline) -> Response:
        """
        Return the response to a request that is sent to a base URL, after up to three redirects.

        Raises :class:`RegistryUnavailableError` if another attempt may succeed.
        """
        url = base.rstrip("/") + request.path
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._round_trip(url, request, deadline)
            if response.status not in _REDIRECTS:
                return _check_status(base, request, response)
            target, origin = _redirect_target(base, url, response)
            if origin != _origin(url):
                # Credentials must not go to a host that the user has not named.
                msg = (
                    f"{_server_url(base)} redirects to another server, {_server_url(target)}; set "
                    "schema.registry.url to that server if it is the registry"
                )
                raise SchemaRegistryError(msg, response.status)
            url = target
        msg = f"{_server_url(base)} redirects more than {_MAX_REDIRECTS} times"
        raise SchemaRegistryError(msg)

    def _round_trip(self, url: str, request: Request, deadline: Deadline) -> Response:
        seconds = self._options.request_timeout_ms / 1000
        limit = deadline.within(seconds)
        limit = limit.extended(max(MIN_SECONDS - limit.remaining(), 0))
        parts = urlsplit(url)
        context = tls_context(self._options) if parts.scheme == "https" else None
        connection = BoundedConnection(parts.hostname or "", parts.port, limit, context)
        try:
            return _receive(_send(connection, url, request, self._headers()))
        except ssl.SSLCertVerificationError as cause:
            msg = (
                f"the certificate of the schema registry {_server_url(url)} is not trusted: "
                f"{cause.verify_message}; check schema.registry.ssl.ca.location and the host's name"
            )
            raise TlsError(msg) from cause
        except (OSError, http.client.HTTPException) as cause:
            reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
            msg = f"{_server_url(url)}: {reason}"
            raise RegistryUnavailableError(msg) from cause
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "User-Agent": "pyspark-pykafka", "Connection": "close"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        return headers


def _authorization(options: RegistryOptions) -> str:
    if options.bearer_token is not None:
        return f"Bearer {options.bearer_token}"
    if options.user_info is not None:
        encoded = base64.b64encode(":".join(options.user_info).encode()).decode()
        return f"Basic {encoded}"
    return ""


def tls_context(options: RegistryOptions) -> ssl.SSLContext:
    """
    Return the TLS context for one connection. Files are read each time, since they may change.

    Raises :class:`TlsError` if a file cannot be read or is invalid.
    """
    try:
        context = ssl.create_default_context(cafile=options.ca_location)
        if options.certificate_location is not None:
            context.load_cert_chain(
                options.certificate_location, options.key_location, options.key_password or ""
            )
    except (OSError, ValueError) as cause:
        msg = (
            "the files of schema.registry.ssl.* cannot be used: "
            f"{getattr(cause, 'strerror', None) or cause}; they must be readable PEM files"
        )
        raise TlsError(msg) from cause
    return context


def _send(
    connection: BoundedConnection, url: str, request: Request, headers: dict[str, str]
) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    body = None if request.body is None else json.dumps(request.body).encode()
    if body is not None:
        headers["Content-Type"] = _CONTENT_TYPE
    connection.request(request.method, target or "/", body=body, headers=headers)
    return connection.getresponse()


def _receive(response: http.client.HTTPResponse) -> Response:
    """
    Read the body within the size limit.
    """
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            msg = f"its response has more than {MAX_RESPONSE_BYTES >> 20} MiB"
            raise http.client.HTTPException(msg)
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    headers = {name.lower(): value for name, value in response.getheaders()}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    return Response(response.status, body.decode(errors="replace"), document, headers)


def _check_status(base: str, request: Request, response: Response) -> Response:
    status = response.status
    if status >= 500 or status in _TRANSIENT:
        msg = f"{_server_url(base)}: HTTP {status}, {response.message}"
        raise RegistryUnavailableError(msg)
    if status == 401:
        msg = (
            f"the schema registry {_server_url(base)} rejects the credentials; check "
            "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token"
        )
        raise AuthenticationError(msg)
    if status == 403:
        msg = f"the schema registry {_server_url(base)} does not permit this user's request"
        raise AuthorizationError(msg)
    if status == 200 and request.expects_json and response.document is None:
        # The response is a proxy's page, or was cut off.
        msg = f"{_server_url(base)}: its response is not JSON"
        raise RegistryUnavailableError(msg)
    return response


def _redirect_target(base: str, url: str, response: Response) -> tuple[str, tuple[str, str, int]]:
    """
    Return the URL that a server redirects to, and its origin.

    Raises :class:`SchemaRegistryError` if it is not a valid URL.
    """
    location = response.headers.get("location", "")
    try:
        target = urljoin(url, location)
        target.encode("ascii")
        return target, _origin(target)
    except ValueError as cause:
        msg = (
            f"{_server_url(base)} redirects to '{location[:_MAX_URL_LENGTH]}', which is not a "
            f"valid URL ({cause}); check the registry or its proxy"
        )
        raise SchemaRegistryError(msg, response.status) from cause


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    default_port = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname or "", parts.port or default_port


def _server_url(url: str) -> str:
    """
    Return the URL of a server: scheme, host and port only.
    """
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{unquote(parts.hostname or '')}{port}"
