"""
A schema registry over real HTTP that implements Confluent's REST API, with injected faults.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import uuid
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from google.protobuf import descriptor_pb2

from pyspark_pykafka.formats.protobuf_schemas import is_proto_text
from pyspark_pykafka.formats.protoc import compile_proto

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

StatusAndBody = tuple[int, Any]

# A subject with its context, as in ``:.prod:orders-value``.
_QUALIFIED = re.compile(r":(\.[^:]*):(.*)")

_NO_SUBJECT = (404, {"error_code": 40401, "message": "Subject not found."})
_NO_VERSION = (404, {"error_code": 40402, "message": "Version not found."})
_NO_SCHEMA = (404, {"error_code": 40403, "message": "Schema not found"})


@dataclass
class Fault:
    """
    A fault of one request: it replaces the response, or happens before it.

    ``status`` and ``body`` replace those of the response, ``seconds`` delays it, ``cut`` sends half
    of the body, and ``location`` is the target of a redirect. ``byte_seconds`` delays each byte of
    the response, from the status line on.
    """

    status: int = 0
    seconds: float = 0
    cut: bool = False
    body: bytes | None = None
    location: str = ""
    byte_seconds: float = 0


@dataclass
class FakeRegistry:
    """
    The state of a registry. A test may read and change it while the server runs.
    """

    user_info: str | None = None
    token: str | None = None
    next_id: int = 1
    has_guids: bool = True
    #: Whether Protobuf schemas are returned as descriptors on request.
    serializes: bool = True
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    #: The other contexts by name, such as ``.prod``, each with its own ids and subjects.
    contexts: dict[str, FakeRegistry] = field(default_factory=dict)
    #: Subjects that were soft-deleted: the ids of their schemas remain.
    deleted: set[str] = field(default_factory=set)
    #: Subjects that accept no further schema.
    closed: set[str] = field(default_factory=set)
    faults: deque[Fault] = field(default_factory=deque)
    #: The fault of every request, unless it is None.
    always: Fault | None = None
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    #: The number of responses whose status line and headers were sent.
    heads_sent: int = 0
    url: str = ""
    _lock: Any = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def add(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: Any = (),
        schema_id: int | None = None,
    ) -> int:
        """
        Register a schema, and return its id; ``schema_id`` chooses the id.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text, "schemaType": kind, "references": list(references)}
        with self._lock:
            equal_ids = [number for number, known in self.schemas.items() if known == entry]
            number = schema_id or (equal_ids[0] if equal_ids else self.next_id)
            self.next_id = max(self.next_id, number + 1)
            self.schemas[number] = entry
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return number

    def guid(self, number: int) -> str:
        """
        Return the GUID of a schema, which is derived from its content.
        """
        return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(self.schemas[number])))

    def options(self, **changed: str) -> dict[str, str]:
        """
        Return the options of a read that uses this registry, with a short timeout.
        """
        return {
            "schema.registry.url": self.url,
            "schema.registry.timeout.ms": "5000",
            **{name.replace("_", "."): value for name, value in changed.items()},
        }

    def serialized(self, document: dict[str, Any]) -> str:
        """
        Return the descriptor of a Protobuf file in base64, as Confluent's registry does.
        """
        text: str = document["schema"]
        if document.get("schemaType") != "PROTOBUF" or not is_proto_text(text):
            return text
        imports = {r["name"]: self._text(r) for r in document.get("references", ())}
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(compile_proto(text, imports))
        return base64.b64encode(descriptors.file[-1].SerializeToString()).decode()

    def _text(self, reference: dict[str, Any]) -> str:
        number = self.subjects[reference["subject"]][reference["version"] - 1]
        schema: str = self.schemas[number]["schema"]
        return schema

    def respond(
        self, method: str, path: str, body: Any, query: dict[str, str] | None = None
    ) -> StatusAndBody:
        """
        Return the HTTP status and the JSON document for a request.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        subject = parts[1] if parts[0] == "subjects" else (query or {}).get("subject", "")
        if (match := _QUALIFIED.fullmatch(subject)) is not None:
            return self._respond_in_context(match, method, parts, body, query)
        if parts[0] == "subjects" and subject in self.deleted:
            shows_deleted = (query or {}).get("deleted") == "true"
            return self._respond_by_path(method, parts, body) if shows_deleted else _NO_SUBJECT
        return self._respond_by_path(method, parts, body)

    def _respond_in_context(
        self,
        subject: re.Match[str],
        method: str,
        parts: list[str],
        body: Any,
        query: dict[str, str] | None,
    ) -> StatusAndBody:
        context, name = subject.groups()
        is_of_subject = parts[0] == "subjects"
        if context not in self.contexts:
            return _NO_SUBJECT if is_of_subject else _NO_SCHEMA
        inner = [parts[0], name, *parts[2:]] if is_of_subject else parts
        path = "/".join(quote(part, safe="") for part in inner)
        status, document = self.contexts[context].respond(
            method, path, body, {**(query or {}), "subject": ""}
        )
        if "subject" in document:
            document = document | {"subject": subject[0]}
        return status, document

    def _respond_by_path(self, method: str, parts: list[str], body: Any) -> StatusAndBody:
        if parts[:3] == ["apis", "registry", "v2"]:
            return self._apicurio(parts[3:])
        if parts[:3] == ["apis", "ccompat", "v7"]:
            parts = parts[3:]
        if method == "GET" and parts[:2] == ["schemas", "ids"] and len(parts) == 3:
            return self._schema(int(parts[2]))
        if method == "GET" and parts[:2] == ["schemas", "guids"] and self.has_guids:
            numbers = [number for number in self.schemas if self.guid(number) == parts[2]]
            return self._schema(numbers[0]) if numbers else _NO_SCHEMA
        if method == "GET" and parts[0] == "subjects" and len(parts) == 4:
            return self._version(parts[1], parts[3])
        if method == "POST" and parts[0] == "subjects":
            return self._post(parts[1], body, registers=len(parts) == 3)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _apicurio(self, parts: list[str]) -> StatusAndBody:
        """
        Respond like Apicurio's own API, in which an artifact corresponds to a subject.
        """
        if parts[0] != "ids" or parts[1] not in {"globalIds", "contentIds"}:
            return 404, {"error_code": 404, "message": "RESTEASY003210"}
        schema = self.schemas.get(int(parts[2]))
        if schema is None:
            return 404, {"error_code": 404, "name": "ArtifactNotFoundException"}
        if len(parts) == 3:
            is_json = schema["schemaType"] != "PROTOBUF"
            return 200, json.loads(schema["schema"]) if is_json else schema["schema"]
        listed = [{**r, "artifactId": r["subject"], "version": "1"} for r in schema["references"]]
        return 200, listed

    def _schema(self, number: int) -> StatusAndBody:
        if number not in self.schemas:
            return _NO_SCHEMA
        return 200, self._shown(number)

    def _shown(self, number: int) -> dict[str, Any]:
        # As in the real registry, the kind AVRO and empty lists are omitted.
        document = {name: value for name, value in self.schemas[number].items() if value}
        if document["schemaType"] == "AVRO":
            del document["schemaType"]
        return document | ({"guid": self.guid(number)} if self.has_guids else {})

    def _version(self, subject: str, version: str) -> StatusAndBody:
        versions = self.subjects.get(subject)
        if not versions:
            return _NO_SUBJECT
        index = len(versions) if version == "latest" else int(version)
        if not 1 <= index <= len(versions):
            return _NO_VERSION
        number = versions[index - 1]
        return 200, self._shown(number) | {"subject": subject, "version": index, "id": number}

    def _post(self, subject: str, body: dict[str, Any], *, registers: bool) -> StatusAndBody:
        entry = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType", "AVRO"),
            "references": body.get("references", []),
        }
        equal_ids = [n for n in self.subjects.get(subject, []) if self.schemas[n] == entry]
        if not equal_ids and not registers:
            return _NO_SCHEMA if subject in self.subjects else _NO_SUBJECT
        if not equal_ids and subject in self.closed:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        if not equal_ids and entry["schemaType"] != "PROTOBUF":
            try:
                json.loads(entry["schema"])
            except ValueError:
                return 422, {"error_code": 42201, "message": "Invalid schema"}
        number = self.add(subject, body["schema"], entry["schemaType"], entry["references"])
        version = self.subjects[subject].index(number) + 1
        return 200, {"id": number, "version": version} | self._shown(number) | (
            {} if registers else {"subject": subject}
        )

    def allows(self, authorization: str | None) -> bool:
        if self.token is not None:
            return authorization == f"Bearer {self.token}"
        if self.user_info is None:
            return True
        return authorization == f"Basic {base64.b64encode(self.user_info.encode()).decode()}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: FakeRegistry

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass

    def _serve(self) -> None:
        registry = self.registry
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        address = urlsplit(self.path)
        path = address.path
        registry.requests.append(f"{self.command} {path}")
        registry.headers.append(dict(self.headers.items()))
        fault = registry.faults.popleft() if registry.faults else registry.always
        if fault is not None and fault.seconds:
            registry.released.wait(fault.seconds)
        if fault is not None and fault.byte_seconds:
            self.wfile: Any = _SlowWriter(self.wfile, fault.byte_seconds, registry.released)
        if fault is not None and (fault.status or fault.body is not None):
            self._send(fault.status or 200, fault.body or b"<html>failure</html>", fault)
            return
        if not registry.allows(self.headers.get("Authorization")):
            self._send(401, json.dumps({"error_code": 40101, "message": "Unauthorized"}).encode())
            return
        query = {name: texts[0] for name, texts in parse_qs(address.query).items()}
        status, document = registry.respond(self.command, path, body, query)
        if status == 200 and isinstance(document, str):
            self._send(status, document.encode(), kind="PROTOBUF")
            return
        if status == 200 and query.get("format") == "serialized" and registry.serializes:
            document = {**document, "schema": registry.serialized(document)}
        self._send(status, json.dumps(document).encode(), fault)

    def _send(
        self, status: int, body: bytes, fault: Fault | None = None, *, kind: str = ""
    ) -> None:
        self.send_response(status)
        if kind:
            self.send_header("X-Registry-ArtifactType", kind)
        if fault is not None and fault.location:
            self.send_header("Location", fault.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.registry.heads_sent += 1
        self.wfile.write(body[: len(body) // 2] if fault is not None and fault.cut else body)
        self.close_connection = True


class _SlowWriter(io.RawIOBase):
    """
    Writes each byte of a response after a pause.
    """

    def __init__(self, target: Any, seconds: float, released: threading.Event) -> None:
        self._target, self._seconds, self._released = target, seconds, released

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        for byte in bytes(data):
            self._released.wait(self._seconds)
            self._target.write(bytes([byte]))
        return len(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """
        Do not log closed connections: faults make clients close them.
        """


@contextmanager
def running_registry(
    registry: FakeRegistry | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[FakeRegistry]:
    """
    Serve a registry on a free port, and yield it with its URL.
    """
    registry = registry or FakeRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        host = "127.0.0.1" if tls is None else "localhost"
        registry.url = f"{scheme}://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield registry
        finally:
            registry.released.set()
            server.shutdown()
            thread.join()


def framed(number: int, body: bytes, id_bytes: int = 4) -> bytes:
    """
    Return bytes in the form of Confluent's serializers: 0, the schema's id, and the body.
    """
    return b"\0" + number.to_bytes(id_bytes, "big", signed=False) + body
