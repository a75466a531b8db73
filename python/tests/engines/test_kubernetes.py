"""Manifests against the official schemas, and their pods as processes that find each other by name."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from kubernetes_schemas import LOCATION
from pods import NameService, pods, running
from ripieno.lab import Lab, missing_requirement
from watching import under_load

ROOT = Path(__file__).resolve().parents[3]
RIPIENO = Path(sys.executable).with_name("ripieno")
KUBECONFORM = Path(sys.executable).with_name("kubeconform")
SCHEMAS = Path(sys.prefix) / "kubernetes-schemas"
needs_schemas = pytest.mark.skipif(
    not (KUBECONFORM.exists() and SCHEMAS.exists()),
    reason="kubeconform and the schemas are not there: install Go, then: make engines",
)
needs_lab = pytest.mark.skipif(missing_requirement() is not None, reason=missing_requirement() or "")
WORKERS = 4
# The promised limit is 2 s; the rest is for a busy machine.
PROMPT_S = 4.0

SCRIPT = """
import sys
import numpy as np
import ripieno as rp

comm = rp.init()
large = rp.empty(1_000_000, np.float64)
large[:] = comm.rank
total = comm.allreduce(large)
print(comm.rank, comm.world_size, comm.racks, total[0], total[-1], sys.argv[1:])
"""
FAILING = """
import ripieno as rp

comm = rp.init()
comm.barrier()
if comm.rank == 2:
    raise KeyError("culprit")
comm.barrier()
"""


def written(folder: Path, script: str, *words: str) -> str:
    """Return the output of the command for a script train.py."""
    (folder / "train.py").write_text(script)
    command = [RIPIENO, "kubernetes", folder / "train.py", "--workers", str(WORKERS), "--image", "here/it:1", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def conform(manifest: str) -> subprocess.CompletedProcess[str]:
    """Return the result of kubeconform."""
    command = [KUBECONFORM, "-strict", "-summary", "-schema-location", f"{SCHEMAS}/{LOCATION}", "-"]
    return subprocess.run(command, input=manifest, capture_output=True, text=True, timeout=60)


ALL_OPTIONS = (
    *("--name", "gang", "--namespace", "team", "--cpu", "2500m", "--memory", "4Gi", "--threads", "2", "--port", "4000"),
    *("--image-pull-policy", "Never", "--env", "A=1e3", "--env", "B=y", "--env", "C=0o17", "--env", "D=null"),
    *("--env", "E=", "--env", "F=a: b # c", "--env", "G=~", "--node-selector", "disk=1", "--node-selector", "on=true"),
    *("--spread", "kubernetes.io/hostname", "--racks", "topology.kubernetes.io/zone", "--claim", "data:/data"),
    *("--rendezvous-timeout", "30"),
)


@needs_schemas
@pytest.mark.parametrize("jobset", [(), ("--jobset",)], ids=["Job", "JobSet"])
@pytest.mark.parametrize("words", [(), ALL_OPTIONS, ("--secret", "mine", "--script-in-image")], ids=["", "all", "bare"])
def test_kubernetes_accepts_the_written_manifest(tmp_path, jobset, words):
    manifest = written(tmp_path, SCRIPT, *words, *jobset, "--", "1", "no", "0x1F", "2001-01-01", "- a", "é\t", "x: |")

    done = conform(manifest)

    count = len(list(yaml.safe_load_all(manifest)))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Valid: {count}, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


@needs_schemas
@pytest.mark.parametrize(
    ("words", "right", "wrong"),
    [
        ((), "backoffLimit:", "backOffLimit:"),
        ((), "publishNotReadyAddresses:", "publishUnreadyAddresses:"),
        ((), "restartPolicy: Never", "restartPolicy: [Never]"),
        ((), "fieldRef:", "fieldReference:"),
        ((), "stringData:", "strings:"),
        (("--jobset",), "maxRestarts:", "restarts:"),
        (("--jobset",), "parallelism: 4", "parallelism: four"),
        (("--jobset",), "labels:", "lables:"),
    ],
)
def test_a_wrong_field_is_found(tmp_path, words, right, wrong):
    manifest = written(tmp_path, SCRIPT, *words)
    assert right in manifest

    done = conform(manifest.replace(right, wrong))

    assert done.returncode == 1
    assert "Invalid: 0" not in done.stdout


@pytest.fixture(scope="module")
def lab():
    """Hosts for the pods of a gang, and one for the name service."""
    with Lab(racks=2, hosts=3, rate="1gbit") as lab:
        yield lab


def gang_of(lab: Lab, manifest: str, uid: str = "uid-1"):
    resources = list(yaml.safe_load_all(manifest))
    return pods(resources, [lab.hosts[0], lab.hosts[1], lab.hosts[3], lab.hosts[4]], uid)


def name_service(lab: Lab, gang, ready=lambda clients: True) -> NameService:
    return NameService(lab, lab.hosts[2], {pod.domain_name: pod.host.address for pod in gang}, ready)


@needs_lab
@pytest.mark.parametrize("words", [(), ("--jobset",)], ids=["Job", "JobSet"])
def test_pods_find_each_other_once_rank_0_has_a_name(lab, tmp_path, words):
    manifest = written(tmp_path, SCRIPT, *words, "--racks", "topology.kubernetes.io/zone", "--", "$(RANK)", "a b")
    gang = gang_of(lab, manifest)

    # No pod, including rank 0, can resolve rank 0 until all have queried it.
    names = name_service(lab, gang, lambda clients: len(clients) == WORKERS)
    with names, running(lab, gang, lab.hosts[2].address, tmp_path) as children:
        outputs = [child.communicate(timeout=60) for child in children]

    assert names.denied >= WORKERS and list(names.clients) == [gang[0].domain_name]
    assert [child.returncode for child in children] == [0] * WORKERS, outputs
    for rank, (out, err) in enumerate(outputs):
        racks = ["zone-0", "zone-0", "zone-1", "zone-1"]
        assert (out, err) == (f"{rank} 4 {racks} 6.0 6.0 ['$(RANK)', 'a b']\n", "")


@needs_lab
def test_the_failed_rank_reports_its_cause_and_the_others_end_at_once(lab, tmp_path):
    gang = gang_of(lab, written(tmp_path, FAILING))

    with name_service(lab, gang), running(lab, gang, lab.hosts[2].address, tmp_path) as children:
        error_output = children[2].communicate(timeout=60)[1]
        since = time.monotonic()
        others = [children[rank].communicate(timeout=60)[1] for rank in (0, 1, 3)]
        elapsed_s = time.monotonic() - since

    assert [child.returncode for child in children] == [1] * WORKERS
    assert "KeyError: 'culprit'" in error_output and "RankFailed" not in error_output
    for text in others:
        assert f"RankFailed: rank 2 on {gang[2].name} failed: KeyError: 'culprit'" in text
    assert elapsed_s < under_load(PROMPT_S)


@needs_lab
def test_a_pod_of_another_attempt_does_not_join(lab, tmp_path):
    manifest = written(tmp_path, SCRIPT, "--jobset", "--rendezvous-timeout", "4")
    new, old = gang_of(lab, manifest, "uid-2"), gang_of(lab, manifest, "uid-1")
    gang = [*new[:3], old[3]]

    with name_service(lab, gang), running(lab, gang, lab.hosts[2].address, tmp_path) as children:
        outputs = [child.communicate(timeout=60)[1] for child in children]

    assert [child.returncode for child in children] == [1] * WORKERS
    assert "their tokens differ" in outputs[3]
    assert "calls came with another token" in outputs[0]


def test_the_commands_of_the_page_run(tmp_path):
    page = (ROOT / "docs/engines/kubernetes.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            ["sh", "-ec", block],
            cwd=tmp_path,
            env={"PATH": f"{RIPIENO.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    manifests = sorted(tmp_path.glob("*.yaml"))
    assert manifests
    if KUBECONFORM.exists() and SCHEMAS.exists():
        for path in manifests:
            assert conform(path.read_text()).returncode == 0
