"""Run every block of the page on Spark as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ripieno as rp
import spark_sessions

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "engines" / "spark.md").read_text()
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs(spark_local):
    (block,) = re.findall(r"^```py\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    space = {
        "__name__": "__main__",
        "np": np,
        "pa": pa,
        "rp": rp,
        "df": spark_local.range(9).selectExpr("double(id) x"),
    }

    exec(block, space)

    assert sorted(row.x for row in space["result"].collect()) == [x - 4.0 for x in range(9)]


@pytest.mark.exhaustive
def test_the_python_of_the_page_runs(spark_local, capfd):
    space = {"__name__": "__main__"}
    for block in blocks("python"):
        exec(compile(block, "spark.md", "exec"), space)

    output = capfd.readouterr().out
    assert "[499.5, 499.5, 499.5, 499.5]\n[0, 1, 2, 3]\n" in output
    assert "avg(x)" in output


# The packages come from an index, and venv-pack is an external tool.
NOT_RUN = ("pip install 'ripieno[spark]'", "venv-pack -p environment -o environment.tar.gz")


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_an_environment_goes_to_executors_as_an_archive(spark_sessions_of, tmp_path):
    spark_sessions_of.close()
    commands = [line for block in blocks("sh") for line in block.splitlines() if line not in NOT_RUN]
    _pack(tmp_path)
    (tmp_path / "train.py").write_text(f"{blocks('python')[0]}\nprint(job.workers, spark.sparkContext.master)\n")
    assert len(commands) == 1
    conf = [f"--conf {name}={value!r}" for name, value in spark_sessions.CONFIGURATION.items() if "Java" not in name]
    command = commands[0].replace("spark-submit", f"spark-submit --master 'local-cluster[1,4,1024]' {' '.join(conf)}")
    scripts = Path(sys.executable).parent

    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | spark_sessions.ENVIRONMENT | {"PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "[499.5, 499.5, 499.5, 499.5]" in done.stdout and "4 local-cluster[1,4,1024]" in done.stdout


def _pack(folder: Path) -> None:
    """Make an archive of an environment's contents, as venv-pack does. Here it has this environment's packages."""
    environment = folder / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    places = sysconfig.get_path("purelib"), str(Path(rp.__file__).parents[1])
    (packages / "packages.pth").write_text("\n".join(places))
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        for path in environment.iterdir():
            archive.add(path, arcname=path.name)
