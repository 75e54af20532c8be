"""
`pykafka peek --value-format json`: values as JSON documents, without a schema.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.record_batches import Batch, Record
from tests.support.stub_brokers import Behaviour, StubCluster

from pyspark_pykafka.cli import main
from pyspark_pykafka.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = ("--value-format", "json")


@contextmanager
def topic_of(*records: tuple[bytes | None, bytes | None]) -> Iterator[str]:
    """
    Serve a topic t of (key, value) pairs, and yield the address.
    """
    numbered = tuple(
        Record(offset, key=key, value=value) for offset, (key, value) in enumerate(records)
    )
    log = [Batch(0, len(records) - 1, numbered).encode()]
    with StubCluster(Behaviour(logs={("t", 0): log})) as cluster:
        yield cluster.bootstrap


def peek(capsys: pytest.CaptureFixture[str], bootstrap: str, *arguments: str) -> str:
    """
    Run the command, which must succeed, and return its output.
    """
    assert main(["peek", "--topic", "t", "--bootstrap-server", bootstrap, *arguments]) == 0
    return capsys.readouterr().out


def peek_documents(
    capsys: pytest.CaptureFixture[str], values: tuple[bytes | None, ...], *arguments: str
) -> list[dict[str, Any]]:
    with topic_of(*((None, value) for value in values)) as bootstrap:
        output = peek(capsys, bootstrap, *VALUE, "--json", *arguments)
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (b'{"n": 1, "at": {"x": [true, null, 1.5]}}', {"n": 1, "at": {"x": [True, None, 1.5]}}),
        (b'{\n  "pretty": 1\n}\n', {"pretty": 1}),
        (b"[]", []),
        (b'"text"', "text"),
        (b"12345678901234567890123", 12345678901234567890123),
        (b"null", None),
        (None, None),
        (b'{"lone": "\\ud800"}', {"lone": "\ud800"}),
    ],
)
def test_a_value_is_a_document(
    capsys: pytest.CaptureFixture[str], value: bytes | None, document: object
) -> None:
    """
    With --json the output has a JSON value as it is, not as text with escaped quotes.
    """
    (record,) = peek_documents(capsys, (value,))

    assert record["value"] == document
    assert "error" not in record


@pytest.mark.parametrize("header", [b"\0" + bytes(3) + b"{", b"\0" + bytes(7) + b"{"])
def test_the_id_of_a_registered_schema_is_left_out(
    capsys: pytest.CaptureFixture[str], header: bytes
) -> None:
    """
    A schema id of four or eight bytes before the JSON, as serializers with a registry write it, is
    not part of the document, even if it looks like JSON.
    """
    (record,) = peek_documents(capsys, (header + b'{"n": 1}',))

    assert (record["value"], record.get("error")) == ({"n": 1}, None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"{", "{"),
        (b"", ""),
        (b"\xff", {"base64": "/w=="}),
        (b"NaN", "NaN"),
        (b"1e400", "1e400"),
        (b"[" * 100_000, "[" * 100_000),
        (b"1" * 5000, "1" * 5000),
        (b"\0\0\0\0\1{", "\0\0\0\0\1{"),
    ],
)
def test_a_value_that_is_no_json(
    capsys: pytest.CaptureFixture[str], value: bytes, shown: object
) -> None:
    """
    A value that is not JSON is shown as if no format were given, with a note. The other values are
    documents, and the command succeeds.
    """
    bad, good = peek_documents(capsys, (value, b"{}"))

    assert bad["value"] == shown
    assert bad["error"].startswith("value is not JSON: ")
    assert (good["value"], "error" in good) == ({}, False)


def test_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Keys may be documents, too, and both notes are shown if neither is JSON.
    """
    with topic_of((b'{"id": 7}', b"{}"), (b"k", b"v")) as bootstrap:
        output = peek(capsys, bootstrap, *VALUE, "--key-format", "json", "--json")

    good, bad = map(json.loads, output.splitlines())
    assert (good["key"], good["value"]) == ({"id": 7}, {})
    assert "key is not JSON" in bad["error"]
    assert "; value is not JSON" in bad["error"]


def test_documents_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Without --json a document is one line without control characters, and a note follows a value
    that is not JSON.
    """
    values = (b'{\n"name": "\xc3\xa9\\u001b\\ud800"}', b"\x1b{")
    with topic_of(*((b"k", value) for value in values)) as bootstrap:
        good, bad = peek(capsys, bootstrap, *VALUE).splitlines()

    assert good.split("  ", 2)[2] == r'k  {"name": "é\u001b\ud800"}'
    assert bad.split("  ", 3)[3].startswith(r"\x1b{  value is not JSON: ")


def test_another_format_for_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    """
    JSON values can stand beside keys that are decoded with a schema.
    """
    with topic_of((b"\x0e", b'{"n": 1}'), (b"\x0e\x0e", b"{")) as bootstrap:
        avro = ("--key-format", "avro", "--option", 'keySchema="long"')
        output = peek(capsys, bootstrap, *VALUE, *avro, "--json")

    good, bad = map(json.loads, output.splitlines())
    assert (good["key"], good["value"]) == (7, {"n": 1})
    assert bad["raw"] is not None
    assert "; value is not JSON: " in bad["error"]


def test_a_schema_is_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A schema is a wrong argument if JSON is the only format: no decoder would use it.
    """
    arguments = ["--bootstrap-server", "127.0.0.1:1", *VALUE, "--option", "valueSchema=n INT"]

    assert main(["peek", "--topic", "t", *arguments]) == ExitCode.WRONG_ARGUMENTS
    assert "--option is valueSchema=...; leave it out: " in capsys.readouterr().err
