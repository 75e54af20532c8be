"""
JSON is read and written as by Spark's ``from_json`` and ``to_json``, except for the differences in
docs/typed-topics.md.
"""

from __future__ import annotations

import json
import random
import struct
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 (the usual name in PySpark)

from pyspark_pykafka.formats.bad_records import BadRecordPolicy
from pyspark_pykafka.formats.encoded_column import EncodedColumn
from pyspark_pykafka.formats.json_decoder import JsonColumn
from pyspark_pykafka.formats.write_format import WrittenColumn
from pyspark_pykafka.spark.compat import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The session's time zone, as tests/conftest.py sets it.
ZONE = "America/St_Johns"
DDL = (
    "t TINYINT, s SMALLINT, i INT, l BIGINT, d DOUBLE, f FLOAT, b BOOLEAN, x STRING, n BINARY, "
    "m DECIMAL(9,2), y DATE, z TIMESTAMP, w TIMESTAMP_NTZ, a ARRAY<INT>, o STRUCT<i: INT, x: "
    "STRING>, k MAP<STRING, BIGINT>, r ARRAY<STRUCT<i: INT, a: ARRAY<DOUBLE>>>"
)
INNER = [("i", pa.int32()), ("x", pa.string())]
REPEATED = [("i", pa.int32()), ("a", pa.list_(pa.float64()))]
KIND = pa.struct(
    [
        ("t", pa.int8()),
        ("s", pa.int16()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("x", pa.string()),
        ("n", pa.binary()),
        ("m", pa.decimal128(9, 2)),
        ("y", pa.date32()),
        ("z", pa.timestamp("us", tz="UTC")),
        ("w", pa.timestamp("us")),
        ("a", pa.list_(pa.int32())),
        ("o", pa.struct(INNER)),
        ("k", pa.map_(pa.string(), pa.int64())),
        ("r", pa.list_(pa.struct(REPEATED))),
    ]
)
FIELDS = [*(field.name for field in KIND), "other"]

# Bytes from 128 to 255 wrap around in Spark; lone surrogates become a question mark. Years that
# Python cannot represent are left out.
WHOLE = st.integers(-128, 127) | st.integers(-(2**35), 2**35).filter(lambda n: not 128 <= n <= 255)
MOMENTS = st.sampled_from(
    [
        *("2024-02-29", "2023-02-29", "2024", "2024-1", "2024-1-2", "2024-01-02T03:04:05Z"),
        *("2024-01-02 03:04:05.123456", "2024-01-02T03:04:05.1234567+01:00", " 2024-01-02 "),
        *("2024-01-02T03:04:05-0930", "2024-01-02T03", "2024-01-02T03:04:05UTC"),
        *("0001-01-01", "9999-12-31T23:59:59.999999", "2024-01-02T", "x2024", ""),
        *("2024-01-02T03:04:05 +1:30", "2024-01-02T24:00:00", "2024-13-01", "2024-01-02x"),
    ]
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BASE64 = st.sampled_from(["", "aGk=", "aGkx", "aGk", "!"])
NUMBERS = st.sampled_from(["NaN", "INF", "-Infinity", "1.5", "1,000.25", "12", "-7.005"])
SCALARS = (
    st.none()
    | st.booleans()
    | WHOLE
    | st.decimals(-(10**8), 10**8, places=3).map(float)
    | WORDS
    | MOMENTS
    | BASE64
    | NUMBERS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*"iak", "other"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def is_count_of_days(value: object) -> bool:
    """
    Return whether from_json reads a text as a number of days since 1970-01-01, and not as a date.
    """
    if not isinstance(value, str):
        return False
    digits = value.lstrip("+-")
    return digits.isdecimal() and not 4 <= len(digits) <= 7


# Mostly values that fit the type, or nearly.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    # Spark reformats the text of other values.
    "x": st.none() | st.booleans() | WHOLE | WORDS | MOMENTS,
    "a": st.lists(st.none() | WHOLE, max_size=3),
    "o": st.fixed_dictionaries({}, optional={"i": WHOLE, "x": WORDS}),
    "k": st.dictionaries(WORDS, WHOLE, max_size=3),
    "r": st.lists(
        st.fixed_dictionaries({}, optional={"i": WHOLE, "a": st.lists(WHOLE)}), max_size=2
    ),
    "y": MOMENTS,
    "z": MOMENTS | WHOLE,
    "w": MOMENTS,
    "n": BASE64 | WHOLE | st.booleans(),
    "m": WHOLE | NUMBERS,
}
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        name: LIKELY[name] if name in "xn" else LIKELY.get(name, SCALARS) | VALUES
        for name in FIELDS
        if name != "y"
    }
    | {"y": (LIKELY["y"] | VALUES).filter(lambda value: not is_count_of_days(value))},
)


def decode(texts: list[str]) -> list[Any]:
    """
    Return the values that the decoder returns for texts.
    """
    column = JsonColumn("value", KIND, 1 << 24, BadRecordPolicy("null"))
    encoded = pa.array([text.encode() for text in texts], pa.binary())
    assert column.decode(encoded, 0, len(texts)) == len(texts)
    decoded: list[Any] = column.take().to_pylist()
    return decoded


def from_json(spark: SparkSession, texts: list[str], *, strict: bool = True) -> list[Any]:
    """
    Return the values that Spark returns for texts, through Arrow, which keeps types and zones.
    """
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = spark.createDataFrame(list(enumerate(texts)), "index INT, text STRING")
    value = F.from_json("text", DDL, {"allowSingleQuotes": "false"} if strict else {})
    try:
        table = frame.select("index", value.alias("value")).toArrow().sort_by("index")
    finally:
        spark.conf.set("spark.sql.session.timeZone", ZONE)
    decoded: list[Any] = table["value"].to_pylist()
    return decoded


@settings(
    max_examples=6,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
    ],
)
@given(st.lists(DOCUMENTS, min_size=60, max_size=200))
def test_values_equal_those_of_from_json(
    spark: SparkSession, documents: list[dict[str, Any]]
) -> None:
    """
    Documents with fields of right and wrong types, at any depth, become equal values.
    """
    texts = [json.dumps(d, separators=(",", ":"), ensure_ascii=False) for d in documents]

    for text, expected, actual in zip(texts, from_json(spark, texts), decode(texts), strict=True):
        assert repr(actual) == repr(expected), text


@pytest.mark.parametrize(
    ("text", "expected", "actual"),
    [
        ("{'i':1}", 1, None),
        ('{"i":1} x', 1, None),
        ('{"d":NaN,"i":1}', 1, None),
        ('{"i":1,"i":"x"}', 1, None),
        ('{"x":{"a" : 1},"i":1}', 1, 1),
        ('{"i":1,"n":"A"}', None, 1),
    ],
)
def test_documented_differences(
    spark: SparkSession, text: str, expected: int | None, actual: int | None
) -> None:
    """
    The field ``i`` shows each documented difference from from_json.
    """
    assert from_json(spark, [text], strict=False)[0]["i"] == expected
    assert decode([text])[0]["i"] == actual


@pytest.mark.parametrize(("text", "days"), [("12", 12), ("-999", -999)])
def test_count_of_days_is_no_date(spark: SparkSession, text: str, days: int) -> None:
    """
    from_json reads a number in a string as a date, because Spark 1.5 wrote dates as days since
    1970; the decoder reads it as NULL.
    """
    document = json.dumps({"y": text})
    assert from_json(spark, [document])[0]["y"] == date(1970, 1, 1) + timedelta(days)
    assert decode([document])[0]["y"] is None


WRITTEN = (
    "t TINYINT, l BIGINT, d DOUBLE, f FLOAT, b BOOLEAN, x STRING, n BINARY, m DECIMAL(38,9), "
    "y DATE, a ARRAY<DOUBLE>, o STRUCT<i: INT, x: STRING>, k MAP<STRING, STRING>"
)


def random_row(generator: random.Random) -> tuple[Any, ...]:
    """
    Return random values for the columns of ``WRITTEN``, some of them null.
    """
    text = "".join(map(chr, generator.choices([0, 9, 10, 31, 34, 47, 92, 127, 233, 0x2028], k=6)))
    double = struct.unpack("<d", generator.randbytes(8))[0]
    single = struct.unpack("<f", generator.randbytes(4))[0]
    values = (
        *(generator.randrange(-128, 128), generator.randrange(-(2**63), 2**63), double, single),
        *(generator.random() < 0.5, text + "\U0001f600", bytearray(generator.randbytes(5))),
        Decimal(generator.randrange(-(10**37), 10**37)).scaleb(-9),
        date.fromordinal(generator.randrange(1, 3_652_059)),
        [None, double, float(generator.randrange(10**9)), generator.random() / 1000],
        (None, text),
        {text: None, "k": text},
    )
    return tuple(None if generator.random() < 0.1 else value for value in values)


def document_of(text: bytes | str) -> dict[str, Any]:
    """
    Return a document whose numbers have their columns' types, because Java before 19 wrote more
    digits of a float than necessary.
    """
    document: dict[str, Any] = json.loads(text, parse_float=Decimal)
    if isinstance(document.get("d"), Decimal):
        document["d"] = float(document["d"])
    if isinstance(document.get("f"), Decimal):
        document["f"] = struct.pack("<f", document["f"])
    if document.get("a"):
        document["a"] = [float(n) if isinstance(n, Decimal) else n for n in document["a"]]
    return document


def test_written_json_equals_to_json(spark: SparkSession) -> None:
    """
    A write encodes structs as the same documents as ``to_json``, nulls included.
    """
    generator = random.Random(20)
    rows = [(i, random_row(generator) if i else None) for i in range(500)]
    schema = f"i INT, value STRUCT<{WRITTEN}>"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    for keeps_nulls in (False, True):
        options = {"ignoreNullFields": str(not keeps_nulls).lower()}
        expected = [
            row[0] for row in frame.orderBy("i").select(F.to_json("value", options)).collect()
        ]
        kind = arrow_schema(frame.schema).field("value").type
        column = EncodedColumn(WrittenColumn("value", "json", kind, keeps_nulls=keeps_nulls))
        table = frame.orderBy("i").toArrow().combine_chunks()
        values = table.column("value").chunk(0)

        texts = column.encode(values, 0, len(values), 1 << 30).to_pylist()

        assert [text and document_of(text) for text in texts] == [
            text and document_of(text) for text in expected
        ]
