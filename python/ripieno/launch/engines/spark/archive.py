"""`ship`: give this package, as it is installed here, to executors that lack it."""

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

# What Spark unpacks is a folder with a name like this, among its files.
_PREFIX = "ripieno-shipped-"
# What there is of a package besides its code: caches, and editors' files.
_IGNORED = {"__pycache__"}
# Zip archives know no earlier time; the same files make the same archive.
_WHEN = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession) -> str:
    """Give the executors of `spark` this package, with its native module, for Python tasks that begin from now on.

    Where it is installed, that counts. Executors still need the packages that ripieno stands on (NumPy, PyArrow,
    cloudpickle, fsspec) and the same Python; ``--archives environment.tar.gz#environment`` brings everything.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession

    Returns
    -------
    str
        The name of the archive among Spark's files; it says what is in it, so shipping again does nothing.
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
            packed.writestr(zipfile.ZipInfo(member, _WHEN), data, zipfile.ZIP_DEFLATED)
    context.addArchive(f"{archive}#{name}")
    return name


def shipped(context: SparkContext) -> str | None:
    """The name of the latest archive, if there is any."""
    names = _names(context)
    return names[-1] if names else None


def _names(context: SparkContext) -> list[str]:
    names = (each.rpartition("#")[2] for each in context.listArchives)
    return [name for name in names if name.startswith(_PREFIX)]


def _members() -> dict[str, bytes]:
    root = Path(str(files("ripieno")))
    found = sorted(path for path in root.rglob("*") if path.is_file() and not _IGNORED & set(path.parts))
    members = {f"ripieno/{path.relative_to(root)}": path.read_bytes() for path in found}
    # By this file Python knows the version.
    members[f"ripieno-{__version__}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: ripieno\nVersion: {__version__}\n".encode()
    )
    return members
