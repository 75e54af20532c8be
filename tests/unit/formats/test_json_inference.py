"""
The schema that is inferred from a sample of JSON texts.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.json_decoder import JsonColumn
from pyspark_pykafka.formats.json_inference import MAX_FIELDS, InvalidJsonError, JsonSample


def sample(*texts: str) -> JsonSample:
    json_sample = JsonSample()
    for text in texts:
        json_sample.add(text.encode())
    return json_sample


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        (["1", "null", "-9223372036854775808"], "BIGINT"),
        (["1", "9223372036854775808"], "DECIMAL(19,0)"),
        (["1" + "0" * 38], "DOUBLE"),
        (["1", "0.5"], "DOUBLE"),
        (["1e3"], "DOUBLE"),
        (["1234567890123.456789"], "DECIMAL(19,6)"),
        (["0.1234567890123456", "9007199254740993"], "DECIMAL(32,16)"),
        (["1e400"], "DOUBLE"),
        (["1.700000123E9"], "DOUBLE"),
        (["1e0", "7"], "DOUBLE"),
        (["1e9999999999999999999"], "DOUBLE"),
        (["0e-9999999999999999999", "12345678901234567"], "DOUBLE"),
        (["1e-400", "12345678901234567"], "DOUBLE"),
        (["true", "null"], "BOOLEAN"),
        (['"a"'], "STRING"),
        (["null"], "STRING"),
        (["1", '"a"'], "STRING"),
        (["1", "true"], "STRING"),
        (["[]"], "ARRAY<STRING>"),
        (["[1]", "[null, 2.5]"], "ARRAY<DOUBLE>"),
        (["[1]", '["a"]'], "ARRAY<STRING>"),
        (["[[1]]"], "ARRAY<ARRAY<BIGINT>>"),
        (["{}"], "STRING"),
        (
            ['{"a":1}', '{"b":{"c":[{"d":true}]}}'],
            "a BIGINT, b STRUCT<c: ARRAY<STRUCT<d: BOOLEAN>>>",
        ),
        (['{"a b":1,"c`d":2,"é":3,"":4}'], "`a b` BIGINT, `c``d` BIGINT, `é` BIGINT, `` BIGINT"),
        (['{"a":1,"a":"x"}'], "a STRING"),
        (['{"a":{"b":1}}', '{"a":[1]}'], "a STRING"),
        (['{"a":1,"\\u001b[2J":2}'], "a BIGINT"),
    ],
)
def test_types(values: list[str], ddl: str) -> None:
    """
    Numbers are widened as far as needed, and values of several kinds become STRING.
    """
    assert sample(*values).schema == ddl


def test_objects_with_many_names_are_maps() -> None:
    """
    An object with very many names becomes a MAP: its names are data, and the sample does not grow
    with them.
    """
    many = {f"k{i}": {"n": i} for i in range(MAX_FIELDS + 5)}

    json_sample = sample(json.dumps(many), '{"more": {"n": 0.5, "m": "x"}}')

    assert json_sample.ddl == "MAP<STRING, STRUCT<n: DOUBLE, m: STRING>>"
    assert len(json_sample.fields) == 1


def test_report() -> None:
    """
    The report has the frequency of each field, and the reason for its type.
    """
    texts = ('{"a":1,"b":[{"c":null}]}', '{"a":"x","B":[]}', '{"a":null,"b":[{"c":null}]}', "null")
    fields = {row.path: row for row in sample(*texts).report()}

    assert [*fields] == ["a", "b", "b[]", "b[].c", "B"]
    assert (fields["a"].seen, fields["a"].total) == (2, 3)
    assert fields["a"].kinds == {"null": 1, "number": 1, "string": 1}
    assert fields["a"].note == "values of several kinds: number, string"
    assert (fields["b[].c"].seen, fields["b[].c"].total) == (0, 2)
    assert fields["b[].c"].note == "only nulls"
    assert fields["B"].note == "only empty arrays"


@pytest.mark.parametrize(
    "text",
    [
        *(b"{", b"", b"\xff", b"NaN", b"{'a':1}", b"1 2", b"[" * 100_000, b'{"a":' * 100_000),
        *(b"9" * 1001, b"1." + b"0" * 1000),
    ],
)
def test_invalid_texts(text: bytes) -> None:
    """
    A text that the decoder would not accept is an error, and leaves nothing in the sample.
    """
    json_sample = JsonSample()

    with pytest.raises(InvalidJsonError):
        json_sample.add(text)
    assert json_sample.ddl == "STRING"
    assert not json_sample.kinds


def test_deep_texts() -> None:
    """
    Arrays are inferred to 50 levels; deeper ones become STRING, and the report says so.
    """
    json_sample = sample("[" * 200 + "]" * 200)

    assert json_sample.ddl.count("ARRAY<") == 50
    assert "nested too deeply" in [*json_sample.report()][-1].note


NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**20).map(str) | st.sampled_from(["0", "1", "9223372036854775808", "9" * 39]),
    st.just("") | st.text("0123456789", min_size=1, max_size=20).map(".{}".format),
    st.just("") | st.sampled_from(["e0", "E9", "e+2", "E-7", "e40", "e-9999999999999999999"]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_numbers_of_the_sample_have_the_inferred_type(numbers: list[str]) -> None:
    """
    The decoder accepts each number of the sample as a value of the type that was inferred from it.
    """
    texts = [f'{{"a":{number}}}'.encode() for number in numbers]
    ddl = sample(*numbers).ddl
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", ddl)
    kind = (
        pa.decimal128(*map(int, decimal.groups()))
        if decimal
        else {"BIGINT": pa.int64(), "DOUBLE": pa.float64()}[ddl]
    )
    column = JsonColumn("value", pa.struct([("a", kind)]), 1 << 20, BadRecordPolicy("null"))

    column.decode(pa.array(texts, pa.binary()), 0, len(texts))

    assert column.take_bad() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=6), st.randoms())
def test_order_does_not_matter(values: list[Any], random: Any) -> None:
    """
    The types do not depend on the order of the texts, except for the order of the fields.
    """
    texts = [json.dumps(value) for value in values if value not in (float("inf"), -float("inf"))]
    texts = [text for text in texts if "Infinity" not in text]
    shuffled = random.sample(texts, len(texts))

    def types(json_sample: JsonSample) -> set[tuple[str, str]]:
        return {(row.path, "".join(sorted(row.type))) for row in json_sample.report()}

    assert types(sample(*texts)) == types(sample(*shuffled))
