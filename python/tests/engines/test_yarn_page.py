"""Run every command and program of the page on YARN as printed, and compare the output with the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hadoop
import launched
import pyarrow.parquet as pq
import pytest
import spark_sessions

PAGE = "engines/yarn.md"
RUN_S = 240

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def environment(mini_hadoop: hadoop.Hadoop, tmp_path: Path) -> dict[str, str]:
    """Return the variables that the mini cluster exports; Spark's own settings files make its JVMs small."""
    reason = spark_sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    settings = spark_sessions.CONFIGURATION | hadoop.spark_configuration(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    programs = Path(sys.executable).parent
    return (
        os.environ
        | mini_hadoop.variables
        | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SPARK_CONF_DIR": str(tmp_path),
            "PYSPARK_PYTHON": sys.executable,
        }
    )


@pytest.mark.exhaustive
def test_the_commands_of_the_page_print_its_output(environment, mini_hadoop: hadoop.Hadoop, tmp_path):
    for block in launched.blocks(PAGE, "python"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)

    output = ""
    for command in launched.commands(PAGE):
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        output += done.stdout

    assert all(block in output for block in launched.blocks(PAGE, "text")), output
    files = mini_hadoop.files
    assert [Path(name).name for name in files.ls("/labels", detail=False)] == [f"part-{i:05}.npy" for i in range(4)]
    assert "/model/centroids.npy" in files.ls("/model", detail=False)
    with files.open("/counts.parquet", "rb") as file:
        assert pq.read_table(file).to_pydict() == {
            "word": ["the", "and", "fox", "hound"],
            "count": [2000, 1000, 1000, 1000],
        }
