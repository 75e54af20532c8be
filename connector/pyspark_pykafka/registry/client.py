"""
The client of a schema registry, used by the driver and the workers.

Paths and error codes are those of Confluent's Schema Registry API v1, which Apicurio's ``ccompat``
API implements. Apicurio's serializers write ids of Apicurio's own API, which has other URLs.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark_pykafka.registry.errors import (
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from pyspark_pykafka.registry.http import Request, Response
from pyspark_pykafka.registry.rest_api import (
    APICURIO_PATH,
    apicurio_url,
    failed_request_error,
    in_context_of,
    is_missing,
    path_part,
    read_number,
    read_references,
    read_schema_type,
    registry_url,
    schema_body,
    with_query,
)
from pyspark_pykafka.registry.schemas import RegisteredSchema, Schema
from pyspark_pykafka.registry.transport import RegistryTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_pykafka.options import RegistryOptions

#: The number of schemas that a client caches, and the seconds for which an id is cached as
#: unknown.
MAX_CACHED = 1000
UNKNOWN_SECONDS = 10.0

# A schema with more direct and indirect references than this is an error.
_MAX_IMPORTS = 500

#: The kinds of ids in Apicurio's own API, as in its paths.
GLOBAL_IDS, CONTENT_IDS = "globalIds", "contentIds"


class SchemaRegistry:
    """
    A client of one registry, for all threads of a process.

    A schema never changes, so schemas are cached by id, GUID and version. An unknown id is cached
    for some seconds; ``latest`` is not cached. ::

        registry = schema_registry(options.registry)
        registered = registry.schema_by_id(7)
        registered.schema.text, dict(registered.imports)

    All methods raise :class:`RegistryUnavailableError` (retriable) if no URL responds before
    ``schema.registry.timeout.ms`` has passed, or if some URLs do not respond and the others lack
    the requested schema. If the login, a permission or the TLS handshake fails, they raise
    :class:`AuthenticationError`, :class:`AuthorizationError` or :class:`TlsError` at once. For any
    other response that is not a success they raise :class:`SchemaRegistryError`.
    """

    def __init__(
        self, transport: RegistryTransport, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._now = now
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, Any], RegisteredSchema] = OrderedDict()
        self._unknown: OrderedDict[tuple[str, Any], tuple[float, SchemaNotFoundError]] = (
            OrderedDict()
        )

    @property
    def is_apicurio(self) -> bool:
        """
        Whether the URLs are Apicurio's, so that Apicurio's own API is available.
        """
        return self._transport.all_urls_match(APICURIO_PATH)

    def schema_by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """
        Return the schema of an id, with its references resolved (``GET
        /schemas/ids/{id}?subject={subject}``).

        An id is unique only within one context of the registry: the context of ``subject``, or
        the default context if there is no subject. An id counts as unknown only if all URLs report
        it as unknown, since a replica of the registry may lag behind.

        Raises :class:`SchemaNotFoundError` if the registry does not know the id.
        """
        path = with_query(f"/schemas/ids/{schema_id}", subject=subject)
        resource = f"id {schema_id}"
        if subject:
            resource += f" of the context of subject '{subject}'"
        # The whole subject is a part of the key, not only its context: the registry searches all
        # contexts for a subject without a context of its own.
        return self._cached(("id", subject, schema_id), path, resource, subject=subject)

    def schema_by_guid(self, guid: str, subject: str = "") -> RegisteredSchema:
        """
        Return the schema of a GUID, such as ``89791762-2336-4186-9674-299b90a802e2``.

        GUIDs are in the header ``__value_schema_id`` (``GET /schemas/guids/{guid}``; Confluent 8.0
        and later). They are unique across all contexts. The schema's references are looked up in
        the context of ``subject``. Raises :class:`SchemaNotFoundError` if the registry does not
        know the GUID.
        """
        path = f"/schemas/guids/{quote(guid)}"
        return self._cached(("guid", subject, guid), path, f"GUID {guid}", subject=subject)

    def schema_of_apicurio(self, kind: str, number: int) -> RegisteredSchema:
        """
        Return a schema by an id of Apicurio's own API; ``kind`` is ``globalIds`` or ``contentIds``.

        Raises :class:`SchemaNotFoundError` if the registry does not know the id.
        """
        return self._cached((kind, number), f"/ids/{kind}/{number}", f"{kind[:-1]} {number}")

    def latest(self, subject: str, *, form: str = "") -> RegisteredSchema:
        """
        Return the latest schema of a subject, with its references resolved (``GET
        /subjects/{subject}/versions/latest``). It is not cached.

        With ``form="serialized"``, Confluent's registry returns the descriptors of Protobuf files
        in base64 instead of their texts (``?format=serialized``).

        Raises :class:`SchemaNotFoundError` if there is no such subject.
        """
        path = f"/subjects/{path_part(subject)}/versions/latest"
        return self._fetch(path, f"subject '{subject}'", form, subject)

    def version(self, subject: str, version: int, *, form: str = "") -> RegisteredSchema:
        """
        Return one version of a subject, with its references resolved; ``form`` is as in ``latest``.

        Raises :class:`SchemaNotFoundError` if there is no such subject or version.
        """
        path = f"/subjects/{path_part(subject)}/versions/{version}"
        key = "version", subject, version, form
        return self._cached(key, path, f"{subject} version {version}", form, subject)

    def look_up(self, subject: str, schema: Schema) -> RegisteredSchema:
        """
        Return a schema with the id that it has under a subject (``POST /subjects/{subject}``).

        Raises :class:`SchemaNotFoundError` if the subject does not exist or lacks the schema.
        """
        request = Request("POST", f"/subjects/{path_part(subject)}", schema_body(schema))
        document = self._request_object(request, f"the schema in subject '{subject}'")
        return self._to_registered(schema, document, subject)

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        """
        Register a schema under a subject, and return it with its id (``POST
        /subjects/{subject}/versions``).

        If it is registered already, its existing id is returned. Older registries return no GUID
        and no version. Raises :class:`IncompatibleSchemaError` if the registry rejects the schema
        as invalid or incompatible.
        """
        request = Request("POST", f"/subjects/{path_part(subject)}/versions", schema_body(schema))
        document = self._request_object(request, f"the schema in subject '{subject}'")
        return self._to_registered(schema, document, subject)

    def _to_registered(
        self, schema: Schema, document: dict[str, Any], subject: str
    ) -> RegisteredSchema:
        return RegisteredSchema(
            schema,
            read_number(document, "id"),
            str(document.get("guid") or ""),
            subject,
            read_number(document, "version"),
            self._imports(schema, subject=subject),
        )

    def _cached(
        self, key: tuple[Any, ...], path: str, resource: str, form: str = "", subject: str = ""
    ) -> RegisteredSchema:
        with self._lock:
            if (cached := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return cached
            since, error = self._unknown.get(key, (0.0, None))
            if error is not None and self._now() - since < UNKNOWN_SECONDS:
                raise error.with_traceback(None)
        try:
            fetched = self._fetch(path, resource, form, subject)
        except SchemaNotFoundError as missing:
            with self._lock:
                _cache_entry(self._unknown, key, (self._now(), missing))
            raise
        with self._lock:
            _cache_entry(self._known, key, fetched)
            self._unknown.pop(key, None)
        return fetched

    def _fetch(
        self, path: str, resource: str, form: str = "", subject: str = ""
    ) -> RegisteredSchema:
        is_apicurio_path = path.startswith("/ids/")
        request = Request("GET", path, expects_json=not is_apicurio_path)
        if form:
            request = request._replace(path=with_query(path, format=form))
        rebase = apicurio_url if is_apicurio_path else registry_url
        response = self._response(request, resource, rebase)
        if is_apicurio_path:
            return self._apicurio_schema(path, resource, response)
        document = response.document
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            msg = (
                f"the schema registry's response for {resource} has no schema; check "
                "schema.registry.url"
            )
            raise SchemaRegistryError(msg)
        schema = Schema(
            document["schema"],
            read_schema_type(document.get("schemaType"), resource),
            read_references(document.get("references")),
        )
        return RegisteredSchema(
            schema,
            read_number(document, "id"),
            str(document.get("guid") or ""),
            str(document.get("subject") or ""),
            read_number(document, "version"),
            self._imports(schema, form, subject),
        )

    def _apicurio_schema(self, path: str, resource: str, response: Response) -> RegisteredSchema:
        schema_type = response.headers.get("x-registry-artifacttype", "AVRO")
        listed = self._response(
            Request("GET", f"{path}/references"), resource, apicurio_url
        ).document
        references = read_references(listed if isinstance(listed, list) else (), "artifactId")
        schema = Schema(response.text, read_schema_type(schema_type, resource), references)
        return RegisteredSchema(schema, int(path.rpartition("/")[2]), imports=self._imports(schema))

    def _request_object(self, request: Request, resource: str) -> dict[str, Any]:
        document = self._response(request, resource, registry_url).document
        if not isinstance(document, dict):
            msg = (
                f"the schema registry's response for {resource} is not a JSON object; check "
                "schema.registry.url"
            )
            raise SchemaRegistryError(msg)
        return document

    def _response(self, request: Request, resource: str, rebase: Callable[[str], str]) -> Response:
        response = self._transport.send(request, lambda r: not is_missing(r), rebase)
        if 200 <= response.status < 300:
            return response
        raise failed_request_error(response, resource)

    def _imports(
        self, schema: Schema, form: str = "", subject: str = ""
    ) -> tuple[tuple[str, Schema], ...]:
        """
        Return the schemas that a schema refers to, in dependency order; a cycle is an error.

        References without a context of their own are looked up in the context of ``subject``, the
        schema's subject.
        """
        imports: dict[tuple[str, int], tuple[str, Schema]] = {}
        self._collect(schema, subject, imports, (), form)
        return tuple(imports.values())

    def _collect(
        self,
        schema: Schema,
        subject: str,
        imports: dict[tuple[str, int], tuple[str, Schema]],
        path: tuple[tuple[str, int], ...],
        form: str,
    ) -> None:
        for reference in schema.references:
            key = in_context_of(subject, reference.subject), reference.version
            if key in imports:
                continue
            if key in path or len(imports) + len(path) >= _MAX_IMPORTS:
                msg = (
                    f"the references of a schema cannot be resolved at '{key[0]}' "
                    f"version {reference.version}: they form a cycle, or there are more than "
                    f"{_MAX_IMPORTS}"
                )
                raise InvalidSchemaError(msg)
            referred = self._fetch_referenced(*key, form)
            self._collect(referred, key[0], imports, (*path, key), form)
            imports[key] = (reference.name, referred)

    def _fetch_referenced(self, subject: str, version: int, form: str) -> Schema:
        """
        Return a schema that another schema refers to, without resolving its own references.
        """
        resource = f"{subject} version {version}"
        path = f"/subjects/{path_part(subject)}/versions/{version}"
        # Soft-deleted versions are requested, too, as in Confluent's clients: schemas that refer to
        # them are still in use.
        query = with_query(path, format=form, deleted="true")
        document = self._request_object(Request("GET", query), resource)
        if not isinstance(document.get("schema"), str):
            msg = (
                f"the schema registry's response for {resource} has no schema; check "
                "schema.registry.url"
            )
            raise SchemaRegistryError(msg)
        return Schema(
            document["schema"],
            read_schema_type(document.get("schemaType"), resource),
            read_references(document.get("references")),
        )


def schema_registry(options: RegistryOptions) -> SchemaRegistry:
    """
    Return this process's client for a registry; all tasks of a worker share its cache.
    """
    return _shared_client(options)


@lru_cache(maxsize=16)
def _shared_client(options: RegistryOptions) -> SchemaRegistry:
    return SchemaRegistry(RegistryTransport(options))


# If a thread holds a client's lock during a fork, the child process would wait for it forever.
os.register_at_fork(after_in_child=_shared_client.cache_clear)


def _cache_entry(cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MAX_CACHED:
        cache.popitem(last=False)
