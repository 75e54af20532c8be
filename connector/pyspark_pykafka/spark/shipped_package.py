"""
Lets Spark's Python workers import the package from an archive that ``--py-files`` ships.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

if TYPE_CHECKING:
    from pyspark import SparkContext

_FOLDER, _NAME = "pyspark_pykafka-shipped", "pyspark_pykafka.zip"


def find_archive() -> Path | None:
    """
    Return the ZIP file or wheel from which this package was imported, None if it is installed.
    """
    # Loaders of ZIP files have the attribute (zipimport.zipimporter).
    archive = getattr(__spec__.loader, "archive", None)
    return None if archive is None else Path(archive)


def ship_archive(context: SparkContext, archive: Path) -> None:
    """
    Make the archive, from which this package was imported, importable in all Python workers.

    Spark gives no added files to the workers in which the driver plans a stream; they have only the
    environment of the session's functions. Workers on executors import from the added files whose
    name ends like that of a package (``SparkContext.PACKAGE_EXTENSIONS``), so not from a wheel.
    """
    if archive.suffix.lower() not in context.PACKAGE_EXTENSIONS:
        archive = _copy_as_zip(archive)
        context.addPyFile(str(archive))
    path = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(archive) not in path:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(archive), *path]))


def _copy_as_zip(archive: Path) -> Path:
    """
    Copy into Spark's own folder of the session: executors fetch the copy, and Spark deletes it.
    """
    copy = Path(SparkFiles.getRootDirectory(), _FOLDER, _NAME)
    if not copy.exists():
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(archive, copy)
    return copy
