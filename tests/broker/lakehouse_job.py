"""
Runs the recipe of one lakehouse, writes its first micro-batch twice, and prints its rows' ids.

It is a separate process, since the jars and extensions are settings of a new session.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.support.page_blocks import Block, PageReader, blocks_of
from tests.support.short_jvm import SHORT_DRIVER

PAGE = "docs/recipes.md"


def settings(block: Block) -> dict[str, str]:
    """
    Return the settings of the command `pyspark` in a block.
    """
    words = shlex.split(block.text.replace("\\\n", " "))
    return dict(
        words[index + 1].split("=", 1) for index, word in enumerate(words) if word == "--conf"
    )


def run(bootstrap: str, folder: str, lakehouse: str, jars: list[str]) -> dict[str, Any]:
    """
    Run the blocks that name the lakehouse, then its function once more with the first micro-batch.
    """
    first, *blocks = [b for b in blocks_of(PAGE) if b.language != "sql"]
    command, *recipe = [b for b in blocks if lakehouse in b.text]
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for name, value in {**SHORT_DRIVER, **settings(command)}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    namespace: dict[str, Any] = {"spark": spark}
    reader = PageReader(bootstrap, Path(folder), namespace)
    for block in (first, *recipe):
        reader.paste(block)
    batch = spark.read.format("pykafka").options(**namespace["brokers"], **namespace["as_json"])
    first_batch = batch.options(
        subscribe="flights", valueSchema="id BIGINT, carrier STRING, delay INT, landed TIMESTAMP"
    ).load()
    namespace[f"to_{lakehouse}"](first_batch, 0)
    table = (
        spark.read.format("delta").load(f"{folder}/lake/flights_delta")
        if lakehouse == "delta"
        else spark.table("lake.db.flights")
    )
    return {
        "ids": sorted(row.id for row in table.select("id").collect()),
        "read": first_batch.count(),
    }


if __name__ == "__main__":
    bootstrap, folder, lakehouse, *jars = sys.argv[1:]
    sys.stdout.write(f"\n{json.dumps(run(bootstrap, folder, lakehouse, jars))}\n")
