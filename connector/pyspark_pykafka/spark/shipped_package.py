"""
Makes the package importable in Spark's Python workers if it is shipped with ``--py-files``.
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
    Return the ZIP file or wheel that this package was imported from; None if it is installed.
    """
    # Loaders of ZIP files have the attribute (zipimport.zipimporter).
    archive = getattr(__spec__.loader, "archive", None)
    return None if archive is None else Path(archive)


def ship_archive(context: SparkContext, archive: Path) -> None:
    """
    Let all Python workers import this package from the archive that it was imported from here.

    The workers in which the driver plans a stream do not get the added files, only the environment
    of the session's functions. Workers on executors import only from added files with certain
    extensions (``SparkContext.PACKAGE_EXTENSIONS``), which do not include wheels.
    """
    if archive.suffix.lower() not in context.PACKAGE_EXTENSIONS:
        archive = _copy_as_zip(archive)
        context.addPyFile(str(archive))
    path = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(archive) not in path:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(archive), *path]))


def _copy_as_zip(archive: Path) -> Path:
    """
    Copy the archive into a folder of the Spark session, which Spark serves to executors and
    deletes.
    """
    copy = Path(SparkFiles.getRootDirectory(), _FOLDER, _NAME)
    if not copy.exists():
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(archive, copy)
    return copy
