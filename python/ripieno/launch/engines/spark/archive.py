"""Provide `ship`, which sends the installed version of this package to Spark executors that lack it."""

from __future__ import annotations

import hashlib
import os
import zipfile
from importlib.resources import files
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ripieno._version import __version__
from ripieno.launch.engines.spark.internals import folder

# Prefix of the archive among Spark's files, which executors unpack into a folder of the same name.
_PREFIX = "ripieno-shipped-"
# Parts of an installation that are not shipped: caches.
_IGNORED = {"__pycache__"}
# Earliest time in a zip archive. With a fixed time, equal files make equal archives.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession) -> str:
    """Send this package, with its native module, to the executors of `spark`, for Python tasks that begin afterwards.

    An installed version takes precedence. Executors still need the dependencies of ripieno (NumPy, PyArrow,
    cloudpickle, fsspec) and the same Python; ``--archives environment.tar.gz#environment`` ships everything.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession

    Returns
    -------
    str
        The name of the archive among Spark's files. It depends on the contents, so a repeated call does nothing.
    """
    members = _members()
    digest = hashlib.sha256()
    for name, data in members.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    name = f"{_PREFIX}{digest.hexdigest()[:16]}"
    context = spark.sparkContext
    if name in _names(context):
        return name
    archive = os.path.join(folder(context), f"{name}.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for member, data in members.items():
            packed.writestr(zipfile.ZipInfo(member, _ZIP_TIME), data, zipfile.ZIP_DEFLATED)
    context.addArchive(f"{archive}#{name}")
    return name


def shipped(context: SparkContext) -> str | None:
    """Return the name of the latest archive, or None."""
    names = _names(context)
    return names[-1] if names else None


def _names(context: SparkContext) -> list[str]:
    names = (each.rpartition("#")[2] for each in context.listArchives)
    return [name for name in names if name.startswith(_PREFIX)]


def _members() -> dict[str, bytes]:
    root = Path(str(files("ripieno")))
    found = sorted(path for path in root.rglob("*") if path.is_file() and not _IGNORED & set(path.parts))
    members = {f"ripieno/{path.relative_to(root)}": path.read_bytes() for path in found}
    # Python reads the version from this file.
    members[f"ripieno-{__version__}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: ripieno\nVersion: {__version__}\n".encode()
    )
    return members
