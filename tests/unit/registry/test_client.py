"""
The registry's client against a registry that answers over HTTP.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import trustme
from tests.support.listening import listen
from tests.support.schema_registry import FakeRegistry, Fault, running_registry

from pyspark_pykafka.errors import AuthenticationError, TlsError
from pyspark_pykafka.options import RegistryOptions
from pyspark_pykafka.registry import client as client_module
from pyspark_pykafka.registry.client import SchemaRegistry, schema_registry
from pyspark_pykafka.registry.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from pyspark_pykafka.registry.http import tls_context
from pyspark_pykafka.registry.schemas import Schema, SchemaReference
from pyspark_pykafka.registry.transport import RegistryTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INT, LONG = json.dumps("int"), json.dumps("long")
#: A port that nothing listens on.
CLOSED = "http://127.0.0.1:1"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def options(*urls: str, **changed: object) -> RegistryOptions:
    quick: dict[str, object] = {"request_timeout_ms": 2000, "timeout_ms": 2000}
    return RegistryOptions(urls, **(quick | changed))  # type: ignore[arg-type]


def client(*urls: str, **changed: object) -> SchemaRegistry:
    return SchemaRegistry(RegistryTransport(options(*urls, **changed)))


def test_schema_by_id_is_requested_once(registry: FakeRegistry) -> None:
    """
    A schema never changes, so a process fetches it once.
    """
    number = registry.add("t-value", INT)
    schema_client = client(registry.url)
    assert schema_client.schema_by_id(number).schema == Schema(INT)
    assert schema_client.schema_by_id(number).schema == Schema(INT)
    assert registry.requests == [f"GET /schemas/ids/{number}"]


def test_id_in_the_context_of_a_subject(registry: FakeRegistry) -> None:
    """
    Each context counts ids from 1, so an id means the schema in the context of its subject.
    """
    prod = registry.contexts[".prod"] = FakeRegistry()
    number = registry.add("t-value", INT)
    assert prod.add("t-value", LONG) == number
    schema_client = client(registry.url)
    for _ in range(2):
        assert schema_client.schema_by_id(number, ":.prod:t-value").schema.text == LONG
        assert schema_client.schema_by_id(number, "t-value").schema.text == INT
        assert schema_client.schema_by_id(number).schema.text == INT
    with pytest.raises(SchemaNotFoundError, match=r"id 1 of the context of subject ':\.dev:t"):
        schema_client.schema_by_id(number, ":.dev:t-value")


def test_references_in_a_context(registry: FakeRegistry) -> None:
    """
    A reference without a context refers to a subject in the context of the referring schema.
    """
    prod = registry.contexts[".prod"] = FakeRegistry()
    registry.add("a", LONG)
    prod.add("a", {"type": "record", "name": "A", "fields": []})
    prod.add("b", ["A", "null"], references=[{"name": "A", "subject": "a", "version": 1}])
    to_b = {"name": "B", "subject": ":.prod:b", "version": 1}
    number = prod.add("t", ["A", "int"], references=[to_b])
    schema_client = client(registry.url)
    for registered in (
        schema_client.schema_by_id(number, ":.prod:t"),
        schema_client.latest(":.prod:t"),
        schema_client.look_up(":.prod:t", schema_client.latest(":.prod:t").schema),
    ):
        first = registered.imports[0]
        assert (first[0], json.loads(first[1].text)["name"]) == ("A", "A")


def test_schema_by_guid(registry: FakeRegistry) -> None:
    """
    A GUID names the same schema as its id.
    """
    number = registry.add("t-value", INT)
    schema_client = client(registry.url)
    assert schema_client.schema_by_guid(registry.guid(number)).schema.text == INT


def test_registry_without_guids(registry: FakeRegistry) -> None:
    """
    The 404 of a registry that has no such path does not mean that the schema is unknown.
    """
    registry.has_guids = False
    with pytest.raises(SchemaRegistryError, match="HTTP 404") as caught:
        client(registry.url).schema_by_guid("89791762-2336-4186-9674-299b90a802e2")
    assert not isinstance(caught.value, SchemaNotFoundError)


def test_latest_is_requested_each_time(registry: FakeRegistry) -> None:
    """
    The latest version is requested each time, so that a new one is seen at once.
    """
    schema_client = client(registry.url)
    registry.add("a/b value", INT)
    assert schema_client.latest("a/b value").version == 1
    number = registry.add("a/b value", LONG)
    latest = schema_client.latest("a/b value")
    assert (latest.id, latest.version, latest.schema.text) == (number, 2, LONG)
    assert latest.guid == registry.guid(number)
    assert schema_client.version("a/b value", 1).schema.text == INT


def test_references_are_resolved_in_order(registry: FakeRegistry) -> None:
    """
    All direct and indirect references are returned once, each after those that it needs.
    """
    registry.add("a", {"type": "record", "name": "A", "fields": []})
    to_a = {"name": "A", "subject": "a", "version": 1}
    registry.add(
        "b",
        {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]},
        references=[to_a],
    )
    to_b = {"name": "B", "subject": "b", "version": 1}
    number = registry.add("t-value", ["A", "B"], references=[to_b, to_a])
    registered = client(registry.url).schema_by_id(number)
    assert [name for name, _ in registered.imports] == ["A", "B"]
    assert registered.schema.references == (
        SchemaReference("B", "b", 1),
        SchemaReference("A", "a", 1),
    )


def test_references_to_deleted_subjects(registry: FakeRegistry) -> None:
    """
    A schema stays usable after the subject that it refers to is soft-deleted, so that its records
    stay readable.
    """
    registry.add("a", {"type": "record", "name": "A", "fields": []})
    to_a = {"name": "A", "subject": "a", "version": 1}
    number = registry.add("t-value", ["A", "null"], references=[to_a])
    registry.deleted.add("a")

    registered = client(registry.url).schema_by_id(number)

    assert [name for name, _ in registered.imports] == ["A"]


def test_references_in_a_circle(registry: FakeRegistry) -> None:
    """
    References in a circle are an error; they are not followed without end.
    """
    registry.add("a", ["null"], references=[{"name": "B", "subject": "b", "version": 1}])
    registry.add("b", ["int"], references=[{"name": "A", "subject": "a", "version": 1}])
    with pytest.raises(SchemaRegistryError, match="form a cycle"):
        client(registry.url).latest("a")


@pytest.mark.parametrize(
    ("subject", "version", "code"), [("none", 1, 40401), ("t-value", 2, 40402)]
)
def test_unknown_subject_or_version(
    registry: FakeRegistry, subject: str, version: int, code: int
) -> None:
    """
    An unknown subject or version is an error of its own, with the registry's code and words.
    """
    registry.add("t-value", INT)
    with pytest.raises(SchemaNotFoundError, match="not found") as caught:
        client(registry.url).version(subject, version)
    assert caught.value.code == code


def test_unknown_id_is_remembered_for_a_while(registry: FakeRegistry) -> None:
    """
    Thousands of records with an unknown id cost one request; a schema that is registered later is
    found after a while.
    """
    seconds = [100.0]
    schema_client = SchemaRegistry(RegistryTransport(options(registry.url)), now=lambda: seconds[0])
    for _ in range(3):
        with pytest.raises(SchemaNotFoundError, match="id 7"):
            schema_client.schema_by_id(7)
    assert len(registry.requests) == 1
    registry.add("t-value", INT, schema_id=7)
    seconds[0] += client_module.UNKNOWN_SECONDS
    assert schema_client.schema_by_id(7).schema.text == INT


def test_cache_is_bounded(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Any number of ids needs bounded memory: the most recently used schemas are kept.
    """
    monkeypatch.setattr(client_module, "MAX_CACHED", 3)
    numbers = [registry.add("t-value", json.dumps({"type": "int", "n": n})) for n in range(5)]
    schema_client = client(registry.url)
    for number in numbers:
        schema_client.schema_by_id(number)
    before = len(registry.requests)
    schema_client.schema_by_id(numbers[-1])
    assert len(registry.requests) == before
    schema_client.schema_by_id(numbers[0])
    assert len(registry.requests) == before + 1


def test_register_and_look_up(registry: FakeRegistry) -> None:
    """
    A schema gets one id, however often it is registered. It cannot be looked up before.
    """
    schema_client = client(registry.url)
    with pytest.raises(SchemaNotFoundError):
        schema_client.look_up("t-value", Schema(INT))
    registered = schema_client.register("t-value", Schema(INT))
    assert schema_client.register("t-value", Schema(INT)) == registered
    by_text = schema_client.look_up("t-value", Schema(INT))
    assert (by_text.id, by_text.version, by_text.subject) == (registered.id, 1, "t-value")
    assert schema_client.register("t-value", Schema("{}", "JSON")).id == registered.id + 1


def test_rejected_schemas(registry: FakeRegistry) -> None:
    """
    Invalid and incompatible schemas are one class of error, which is not retriable.
    """
    schema_client = client(registry.url)
    with pytest.raises(IncompatibleSchemaError, match="Invalid schema") as invalid:
        schema_client.register("t-value", Schema("{"))
    assert (invalid.value.code, invalid.value.retriable) == (42201, False)
    registry.closed.add("t-value")
    with pytest.raises(IncompatibleSchemaError, match="incompatible") as rejected:
        schema_client.register("t-value", Schema(INT))
    assert rejected.value.code == 409
    assert len(registry.requests) == 2


def test_next_url_answers(registry: FakeRegistry) -> None:
    """
    A URL that does not respond is skipped, and the next request begins with the URL that responded.
    """
    number = registry.add("t-value", INT)
    with running_registry() as failing:
        failing.always = Fault(503)
        schema_client = client(CLOSED, failing.url, registry.url)
        assert schema_client.schema_by_id(number).schema.text == INT
        schema_client.latest("t-value")
    assert len(failing.requests) == 1


def test_replica_that_lags(registry: FakeRegistry) -> None:
    """
    An id that the first URL does not know yet is looked up at the others.
    """
    number = registry.add("t-value", INT)
    with running_registry() as lagging:
        assert client(lagging.url, registry.url).schema_by_id(number).schema.text == INT


def test_replica_that_lags_while_another_restarts(registry: FakeRegistry) -> None:
    """
    An id that one URL does not know is looked up again at another one that fails for a while.
    """
    number = registry.add("t-value", INT)
    registry.faults.extend([Fault(503), Fault(cut=True)])
    with running_registry() as lagging:
        assert client(lagging.url, registry.url).schema_by_id(number).schema.text == INT


def test_unknown_id_while_a_url_does_not_respond(registry: FakeRegistry) -> None:
    """
    While one URL does not respond, an id that the others do not know is not reported as unknown:
    the error is retriable, names that URL, and is not remembered.
    """
    schema_client = client(registry.url, CLOSED, timeout_ms=1000)
    for _ in range(2):
        before = len(registry.requests)
        with pytest.raises(RegistryUnavailableError, match="not every URL") as caught:
            schema_client.schema_by_id(7)
        assert CLOSED in str(caught.value)
        assert len(registry.requests) > before
    assert caught.value.retriable


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500),
        Fault(429),
        Fault(cut=True),
        Fault(body=b"<html>"),
        Fault(body=b"[" * 100_000),
        Fault(status=502, body=b"{}"),
    ],
    ids=["500", "429", "cut off", "a page", "deep JSON", "502"],
)
def test_transient_failure(registry: FakeRegistry, fault: Fault) -> None:
    """
    After a transient failure the request is retried.
    """
    number = registry.add("t-value", INT)
    registry.faults.extend([fault, fault])
    assert client(registry.url).schema_by_id(number).schema.text == INT
    assert len(registry.requests) == 3


def test_no_url_answers() -> None:
    """
    The error names all URLs and why each failed, and it is retriable.
    """
    with running_registry() as failing:
        failing.always = Fault(500)
        with pytest.raises(RegistryUnavailableError) as caught:
            client(CLOSED, failing.url, timeout_ms=500).schema_by_id(1)
    assert caught.value.retriable
    text = str(caught.value)
    assert CLOSED in text
    assert f"{failing.url}: HTTP 500" in text
    assert len(failing.requests) > 1


def test_unavailable_is_not_remembered(registry: FakeRegistry) -> None:
    """
    After an outage the schema is requested again: the failure is not cached.
    """
    number = registry.add("t-value", INT)
    schema_client = client(registry.url, timeout_ms=200)
    registry.always = Fault(500)
    with pytest.raises(RegistryUnavailableError):
        schema_client.schema_by_id(number)
    registry.always = None
    assert schema_client.schema_by_id(number).schema.text == INT


def test_slow_registry(registry: FakeRegistry) -> None:
    """
    A request has a limit of its own, after which the next URL is used.
    """
    number = registry.add("t-value", INT)
    with running_registry() as slow:
        slow.always = Fault(seconds=60)
        schema_client = client(slow.url, registry.url, request_timeout_ms=200, timeout_ms=60_000)
        assert schema_client.schema_by_id(number).schema.text == INT


def test_response_that_arrives_byte_by_byte(registry: FakeRegistry) -> None:
    """
    The limit of a request covers the whole response, also if each byte of its head comes in time.
    """
    number = registry.add("t-value", INT)
    with running_registry() as slow:
        slow.add("t-value", LONG)
        slow.always = Fault(byte_seconds=0.05)
        schema_client = client(slow.url, registry.url, request_timeout_ms=200, timeout_ms=60_000)
        assert schema_client.schema_by_id(number).schema.text == INT
        with pytest.raises(RegistryUnavailableError, match="timed out"):
            client(slow.url, request_timeout_ms=200, timeout_ms=300).schema_by_id(number)
        assert slow.heads_sent == 0


def test_host_with_an_address_that_does_not_respond(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The limit of a request is divided among the addresses of a host, so a silent one leaves time for
    the next one.
    """
    number = registry.add("t-value", INT)
    port = urlsplit(registry.url).port
    with silent_address() as silent:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (silent, ("127.0.0.1", port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        schema_client = client(f"http://registry:{port}", request_timeout_ms=1000, timeout_ms=1100)
        assert schema_client.schema_by_id(number).schema.text == INT


def test_a_dns_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A request whose host name cannot be looked up ends at its deadline, and the error says so.
    """
    over = threading.Event()

    def hanging(*_: object, flags: int = 0, **__: object) -> None:
        if not flags:
            over.wait(30)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    for module in ("name_resolution", "retry"):
        monkeypatch.setattr(f"pyspark_pykafka.{module}.LONG_WAIT_SECONDS", 0.1)
    schema_client = client("http://registry:8081", request_timeout_ms=300, timeout_ms=800)
    started_at = time.monotonic()
    try:
        with pytest.raises(RegistryUnavailableError, match="lookup of its host name timed out"):
            schema_client.schema_by_id(1)
        seconds = time.monotonic() - started_at
    finally:
        over.set()

    assert seconds < 10
    (line,) = (record.message for record in caplog.records)
    assert "http://registry:8081: the lookup of its host name timed out" in line
    assert "retrying" in line


@contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """
    Yield an address that answers no attempt to connect, since its queue is full.
    """
    with listen(backlog=0) as listener, ExitStack() as clients:
        address = listener.getsockname()
        while True:
            waiting = clients.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(address)
            except TimeoutError:
                yield address
                return


def test_huge_response(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A response beyond the size limit is an error.
    """
    monkeypatch.setattr("pyspark_pykafka.registry.http.MAX_RESPONSE_BYTES", 1000)
    number = registry.add("t-value", INT + " " * 1000)
    with pytest.raises(RegistryUnavailableError, match="MiB"):
        client(registry.url, timeout_ms=100).schema_by_id(number)


def test_redirect_within_a_server(registry: FakeRegistry) -> None:
    """
    A redirect to another path of the same server is followed.
    """
    number = registry.add("t-value", INT)
    registry.faults.append(Fault(307, location=f"/schemas/ids/{number}"))
    assert client(f"{registry.url}/old").schema_by_id(number).schema.text == INT


def test_redirect_to_another_server(registry: FakeRegistry) -> None:
    """
    Credentials are never sent to a server that the user has not named.
    """
    with running_registry(FakeRegistry(user_info="me:secret")) as with_login:
        with_login.always = Fault(302, location=f"{registry.url}/schemas/ids/1")
        with pytest.raises(SchemaRegistryError, match="redirects to another server"):
            client(with_login.url, user_info=("me", "secret")).schema_by_id(1)
    assert registry.requests == []


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:999999/x", "http://[x/", "//[", "http://h:x/", "/\u00fc"]
)
def test_redirect_to_an_invalid_url(registry: FakeRegistry, location: str) -> None:
    """
    A redirect to an invalid URL is an error that names the registry and the URL.
    """
    registry.always = Fault(302, location=location)
    with pytest.raises(SchemaRegistryError, match="which is not a valid URL") as caught:
        client(registry.url).schema_by_id(1)
    assert registry.url in str(caught.value)
    assert location in str(caught.value)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"schemaType": ["AVRO"]}, "of id 1 has the type"),
        ({"schemaType": {}}, ""),
        ({"schemaType": "XML"}, "of id 1 has the type XML"),
        ({"references": 5}, "references that cannot be read"),
        ({"references": [5]}, "references that cannot be read"),
        ({"references": [{"name": "A", "subject": "a", "version": "²"}]}, "cannot be read"),
        *(({name: "²"}, "") for name in ("id", "version")),
        *(({name: "9" * 5000}, "") for name in ("id", "version")),
    ],
)
def test_responses_of_another_form(
    registry: FakeRegistry, document: dict[str, Any], text: str
) -> None:
    """
    If a response has values of other types, it is an error, or the values count as missing.
    """
    registry.always = Fault(body=json.dumps({"schema": INT, **document}).encode())
    if text:
        with pytest.raises(InvalidSchemaError, match=text):
            client(registry.url).schema_by_id(1)
    else:
        registered = client(registry.url).schema_by_id(1)
        assert (registered.id, registered.version) == (-1, -1)


@pytest.mark.parametrize("references", [[5], [{"name": "A"}]])
def test_references_of_apicurio_of_another_form(registry: FakeRegistry, references: Any) -> None:
    """
    Apicurio's references that cannot be read are an error of the registry.
    """
    registry.faults.extend(
        Fault(body=json.dumps(document).encode()) for document in (INT, references)
    )
    schema_client = client(f"{registry.url}/apis/registry/v2")
    with pytest.raises(InvalidSchemaError, match="references that cannot be read"):
        schema_client.schema_of_apicurio("globalIds", 1)


def test_redirects_without_end(registry: FakeRegistry) -> None:
    """
    Redirects in a circle end in an error.
    """
    registry.always = Fault(302, location="/schemas/ids/1")
    with pytest.raises(SchemaRegistryError, match="more than 3 times"):
        client(registry.url).schema_by_id(1)


@pytest.mark.parametrize(
    ("expected", "credentials"),
    [
        ({"user_info": "me:se:cret"}, {"user_info": ("me", "se:cret")}),
        ({"token": "abc"}, {"bearer_token": "abc"}),
    ],
)
def test_authentication(expected: dict[str, str], credentials: dict[str, object]) -> None:
    """
    Basic and bearer credentials are sent; without them, the first request fails with
    AuthenticationError and is not retried.
    """
    with running_registry(FakeRegistry(**expected)) as guarded:  # type: ignore[arg-type]
        number = guarded.add("t-value", INT)
        assert client(guarded.url, **credentials).schema_by_id(number).schema.text == INT
        with pytest.raises(AuthenticationError, match="rejects the credentials"):
            client(guarded.url).schema_by_id(number)
    assert len(guarded.requests) == 2


def test_secrets_are_not_shown() -> None:
    """
    The options' ``repr`` shows no password and no token.
    """
    guarded = options(
        "https://h",
        user_info=("me", "geheim1"),
        bearer_token="geheim2",  # noqa: S106 (a password that must not be shown)
        key_password="geheim3",  # noqa: S106
    )
    assert "geheim" not in repr(guarded)
    assert pickle.loads(pickle.dumps(guarded)) == guarded  # noqa: S301


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *, requires_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    if requires_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def test_tls(authority: trustme.CA, tmp_path: Path) -> None:
    """
    A registry's certificate is verified; if another authority issued it, the error says so.
    """
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with running_registry(tls=server_context(authority)) as guarded:
        number = guarded.add("t-value", INT)
        trusting = client(guarded.url, ca_location=str(tmp_path / "ca.pem"))
        assert trusting.schema_by_id(number).schema.text == INT
        with pytest.raises(TlsError, match="is not trusted"):
            client(guarded.url, ca_location=str(tmp_path / "other.pem")).schema_by_id(number)


def test_mutual_tls(authority: trustme.CA, tmp_path: Path) -> None:
    """
    A registry that requires a certificate gets that of the options, with its encrypted key.
    """
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("client")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    with running_registry(tls=server_context(authority, requires_certificate=True)) as guarded:
        number = guarded.add("t-value", INT)
        mutual = client(
            guarded.url,
            ca_location=str(tmp_path / "ca.pem"),
            certificate_location=str(tmp_path / "client.pem"),
        )
        assert mutual.schema_by_id(number).schema.text == INT
        with pytest.raises(RegistryUnavailableError):
            client(guarded.url, ca_location=str(tmp_path / "ca.pem"), timeout_ms=100).schema_by_id(
                number
            )


def test_missing_file(tmp_path: Path) -> None:
    """
    A file that cannot be read is an error that names the options.
    """
    with pytest.raises(TlsError, match=r"schema\.registry\.ssl"):
        tls_context(options("https://h", ca_location=str(tmp_path / "none.pem")))


def test_one_client_per_process(registry: FakeRegistry) -> None:
    """
    Tasks of one worker share a client, and a forked process gets one of its own.
    """
    registry_options = options(registry.url)
    first = schema_registry(registry_options)
    assert schema_registry(options(registry.url)) is first
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"other" if schema_registry(registry_options) is not first else b"same")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"other"
    os.close(reading)
    os.close(writing)


def test_threads_share_a_client(registry: FakeRegistry) -> None:
    """
    Threads that request a schema at the same time all get it.
    """
    number = registry.add("t-value", INT)
    schema_client = client(registry.url)
    texts: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: texts.append(schema_client.schema_by_id(number).schema.text)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [INT] * 8


@pytest.mark.parametrize(
    "error",
    [
        SchemaRegistryError("a", 409),
        SchemaNotFoundError("b", 40403),
        IncompatibleSchemaError("c", 42201),
        RegistryUnavailableError("d"),
    ],
)
def test_errors_pickle(error: SchemaRegistryError) -> None:
    """
    Errors are pickled with their class, text and code.
    """
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
