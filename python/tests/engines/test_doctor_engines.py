"""``ripieno doctor --engine`` in real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import pytest
import ripieno as rp
import spark_sessions
from click.testing import CliRunner
from conformance import SLOTS
from ripieno.cli.run import doctor_command
from ripieno.launch.engine import survey
from ripieno.launch.engines.dask import engine as dask


def examined(engine: str, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code, and the results by name."""
    result = CliRunner().invoke(doctor_command, ["--engine", engine, *options, "--json"], catch_exceptions=False)
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def is_fit(findings: dict[str, dict[str, str]], engine: str) -> bool:
    """Return whether every slot was free, all versions are equal, and two ranks have computed."""
    versions = survey.versions()
    return (
        findings["slots"]["found"] == f"{SLOTS} in all, all of them free"
        and all(
            findings[package]["found"] == f"{versions[package]} here and in all {SLOTS} tasks" for package in versions
        )
        and findings["network"]["found"].endswith("reach each other")
        and "allreduce of 8 B" in findings[f"2 workers in {engine}"]["found"]
    )


def test_a_dask_cluster_passes_and_its_open_scheduler_is_reported(dask_client):
    code, findings = examined("dask", "--address", dask_client.scheduler.address)

    assert code == 0 and is_fit(findings, "dask"), findings
    assert findings["token"]["found"].endswith("not authenticated and not encrypted")
    assert "tls://" in findings["token"]["advice"]


def test_slots_that_others_have_are_counted(dask_client):
    with rp.launch(workers=1, engine="dask", client=dask_client):
        code, findings = examined("dask", "--address", dask_client.scheduler.address)

    assert code == 0
    assert findings["slots"]["found"] == f"{SLOTS} in all, {SLOTS - 1} free"
    assert findings["numpy"]["found"].endswith(f"in all {SLOTS - 1} tasks")


def test_a_scheduler_that_does_not_exist_is_a_finding(dask_client, monkeypatch):
    monkeypatch.setattr(dask, "CONNECT_S", 0.5)

    code, findings = examined("dask", "--address", "tcp://127.0.0.1:1")

    assert code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in findings["dask"]["found"]


def test_a_ray_cluster_of_two_nodes_passes_the_checks(ray_nodes):
    code, findings = examined("ray")

    assert code == 0 and is_fit(findings, "ray"), findings
    assert findings["ray"]["outcome"] == "good"
    assert "RAY_USE_TLS" in findings["token"]["advice"]


def test_a_ray_that_the_command_started_is_reported_as_not_found(ray_nodes):
    command = [sys.executable, "-m", "ripieno", "doctor", "--engine", "ray", "--json"]
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        environment = os.environ | {"RAY_TMPDIR": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)

    findings = {each["name"]: each for each in json.loads(done.stdout)}
    assert done.returncode == 0 and findings["ray"]["outcome"] == "warning", done.stdout + done.stderr
    assert "no cluster was found" in findings["ray"]["found"] and "ray start" in findings["ray"]["advice"]
    assert "allreduce" in findings["2 workers in ray"]["found"]


def test_a_slurm_allocation_passes_the_checks(slurm, monkeypatch):
    for name, value in slurm.variables.items():
        monkeypatch.setenv(name, value)

    code, findings = examined("slurm")

    assert code == 0 and is_fit(findings, "slurm"), findings


def test_executors_in_their_own_processes_pass_the_checks(spark_cluster):
    code, findings = examined("spark")

    assert code == 0 and is_fit(findings, "spark"), findings
    assert "spark.authenticate=true" in findings["token"]["advice"]
    assert not spark_cluster.sparkContext._jsc.sc().isStopped()


# Spark starts.
@pytest.mark.timeout(300)
def test_the_command_starts_a_spark_session_of_its_own(spark_sessions_of):
    spark_sessions_of.close()
    command = [sys.executable, "-m", "ripieno", "doctor", "--engine", "spark", "--address", "local[2]", "--json"]

    environment = os.environ | spark_sessions.ENVIRONMENT | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stdout + done.stderr
    findings = {each["name"]: each for each in json.loads(done.stdout)}
    assert findings["slots"]["found"] == "2 in all, all of them free"
    assert findings["token"]["outcome"] == "good"
