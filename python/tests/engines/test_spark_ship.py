"""Spark executors without ripieno: a launch reports this, and `rp.spark.ship` installs the package."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import cloudpickle
import pytest
import ripieno as rp
import spark_programs as programs
from ripieno.errors import EngineError
from ripieno.launch.engine import member_server

pytest.importorskip("pyspark", reason="no pyspark: pip install 'ripieno[spark]'")

cloudpickle.register_pickle_by_value(programs)


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter with all packages of this one except ripieno, which is installed in editable mode."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "packages.pth").write_text(sysconfig.get_path("purelib"))
    python = str(folder / "bin" / "python")
    found = subprocess.run([python, "-c", "import ripieno"], capture_output=True, text=True)
    assert "No module named 'ripieno'" in found.stderr
    return python


@pytest.fixture
def without_ripieno(spark_cluster, other_python: str, monkeypatch: pytest.MonkeyPatch):
    """Provide a session with executors that run the interpreter without ripieno."""
    monkeypatch.setattr(spark_cluster.sparkContext, "pythonExec", other_python)
    return spark_cluster


def test_executors_without_ripieno_get_it(without_ripieno):
    with pytest.raises(rp.RankFailed, match=r"ripieno is not installed for .*python.*: install it.*rp\.spark\.ship"):
        rp.launch(engine="spark", workers=4)

    name = rp.spark.ship(without_ripieno)

    assert rp.spark.ship(without_ripieno) == name, "an archive is sent once"
    assert sum(name in archive for archive in without_ripieno.sparkContext.listArchives) == 1
    with rp.launch(engine="spark", workers=4) as job:
        assert [row["sum"] for row in job.run(programs.count, 0)] == [6] * 4
        places = job.run(programs.where_ripieno_is)
    assert all(name in place for place, _ in places)
    assert all(name in native for _, native in places)
    assert rp.spark.run(without_ripieno.range(0, 8, 1, 4), programs.row_count) == [2] * 4


def test_an_archive_holds_the_package_and_nothing_else(without_ripieno):
    name = rp.spark.ship(without_ripieno)

    (archive,) = Path(without_ripieno.sparkContext._temp_dir).glob(f"{name}.zip")
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
    assert f"ripieno-{rp.__version__}.dist-info/METADATA" in names and "ripieno/comm/communicator.py" in names
    assert [each for each in names if each.startswith("ripieno/_native") and each.endswith(".so")]
    assert not [each for each in names if "__pycache__" in each]


def test_another_version_at_the_executors_is_named(spark_cluster, monkeypatch):
    """The driver's version is changed, because both sides share one installation."""
    theirs = rp.__version__
    monkeypatch.setattr(member_server, "__version__", "9.9")

    with pytest.raises(
        EngineError, match=rf"has ripieno {theirs}, .* has ripieno 9\.9: install the same version there"
    ):
        rp.launch(engine="spark", workers=2)
