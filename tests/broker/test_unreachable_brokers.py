"""
Queries without reachable brokers end soon, with the default time limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.listening import listen

from pyspark_pykafka.engines.first_contact import FIRST_CONTACT_MS
from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Four attempts of Spark, or the limit of a query in progress, would take minutes.
SOON_SECONDS = 90


@pytest.mark.timeout(SOON_SECONDS)
def test_a_read_from_a_silent_address_ends_soon(spark: SparkSession) -> None:
    """
    An address that accepts connections and never responds is reported within the time limit of a
    first contact, which is 10 s.
    """
    with listen() as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = {"kafka.bootstrap.servers": address, "subscribe": "t"}
        with pytest.raises(Exception, match="no broker answers") as raised:
            spark.read.format("pykafka").options(**options).load().count()

    assert address in str(raised.value)


@pytest.mark.timeout(SOON_SECONDS)
# test_brokers_of_writes.py has both without Spark.
@pytest.mark.parametrize("topic", [pytest.param("option", marks=pytest.mark.soak), "column"])
def test_a_write_to_a_closed_port_ends_soon(spark: SparkSession, topic: str) -> None:
    """
    A write to an address where nothing listens is reported within the same limit, and Spark does
    not repeat it, wherever the topic is named.
    """
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = {"kafka.bootstrap.servers": address}
    columns = ["'a' AS value"]
    if topic == "option":
        options["topic"] = "t"
    else:
        columns.append("'t' AS topic")
    rows = spark.range(1).selectExpr(*columns)

    with pytest.raises(Exception, match="no broker answers") as raised:
        rows.write.format("pykafka").options(**options).mode("append").save()

    assert address in str(raised.value)
    assert f"{FIRST_CONTACT_MS} ms" in str(raised.value)
