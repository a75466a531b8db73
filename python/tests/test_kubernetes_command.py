"""`ripieno kubernetes`: its output and its errors. The engine tests check that Kubernetes accepts the output."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ripieno.cli import main
from ripieno.errors import InputError
from ripieno.launch.kubernetes.manifest import SCRIPTS, Manifest

SCRIPT = 'import ripieno as rp\n\nprint(rp.init().rank, "ä: $(RANK)\\t")\n'


@pytest.fixture
def written(tmp_path, capsys):
    """Return the resources that the command writes for a script train_me.py, by kind."""
    (tmp_path / "train_me.py").write_text(SCRIPT)

    def resources(*words: str) -> dict[str, Any]:
        code = main(["kubernetes", str(tmp_path / "train_me.py"), "--workers", "3", "--image", "here/it:1", *words])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return {each["kind"]: each for each in yaml.safe_load_all(out)}

    return resources


def pod(resources: dict[str, Any]) -> dict[str, Any]:
    if "JobSet" in resources:
        (replicated,) = resources["JobSet"]["spec"]["replicatedJobs"]
        return replicated["template"]["spec"]["template"]["spec"]
    return resources["Job"]["spec"]["template"]["spec"]


def variables(resources: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod(resources)["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_script_becomes_pods_with_the_address_of_rank_0(written):
    resources = written()

    assert list(resources) == ["Secret", "ConfigMap", "Service", "Job"]
    assert {each["metadata"]["name"] for each in resources.values()} == {"train-me"}
    job, service = resources["Job"]["spec"], resources["Service"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"], job["backoffLimit"]) == ("Indexed", 3, 3, 0)
    assert pod(resources)["restartPolicy"] == "Never"
    # SIGTERM then ends a rank immediately, because it is not the first process of its PID namespace.
    assert pod(resources)["shareProcessNamespace"] is True
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert service["selector"] == {"batch.kubernetes.io/job-name": "train-me"}
    described = variables(resources)
    assert (described["MASTER_ADDR"], described["MASTER_PORT"]) == (
        "train-me-0.train-me",
        str(service["ports"][0]["port"]),
    )
    assert described["WORLD_SIZE"] == "3"


def test_the_script_is_included_byte_for_byte(written):
    resources = written()

    (container,) = pod(resources)["containers"]
    assert resources["ConfigMap"]["data"] == {"train_me.py": SCRIPT}
    assert container["command"] == ["ripieno", "run", f"{SCRIPTS}/train_me.py"]
    assert container["volumeMounts"] == [{"name": "script", "mountPath": SCRIPTS, "readOnly": True}]
    assert pod(resources)["volumes"] == [{"name": "script", "configMap": {"name": "train-me"}}]


def test_the_token_is_random_and_only_in_the_secret(written):
    tokens = []
    for _ in range(2):
        resources = written()
        (token,) = resources.pop("Secret")["stringData"].values()
        tokens.append(token)
        assert len(token) == 64 and token not in yaml.safe_dump(resources)
        assert variables(resources)["RIPIENO_SECRET"] == {"secretKeyRef": {"name": "train-me", "key": "token"}}
    assert tokens[0] != tokens[1]


def test_an_existing_secret_is_used(written):
    resources = written("--secret", "team.tokens")

    assert "Secret" not in resources
    assert variables(resources)["RIPIENO_SECRET"] == {"secretKeyRef": {"name": "team.tokens", "key": "token"}}


def test_every_attempt_has_a_different_token(written):
    # Each Job has another UID, also one recreated by a JobSet.
    for words in ((), ("--jobset",)):
        described = variables(written(*words))
        assert described["RIPIENO_ATTEMPT"] == {
            "fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}
        }
        assert described["RIPIENO_TOKEN"] == "$(RIPIENO_SECRET).$(RIPIENO_ATTEMPT)"
        assert list(described).index("RIPIENO_TOKEN") > max(
            list(described).index("RIPIENO_SECRET"), list(described).index("RIPIENO_ATTEMPT")
        )


def test_a_jobset_restarts_all_pods(written):
    resources = written("--jobset", "--restarts", "5")

    assert list(resources) == ["Secret", "ConfigMap", "JobSet"]
    assert resources["JobSet"]["spec"]["failurePolicy"] == {"maxRestarts": 5}
    assert variables(resources)["MASTER_ADDR"] == "train-me-rank-0-0.train-me"
    assert "subdomain" not in pod(resources)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ["--", "--epochs", "3", "a b", "$(RANK) $x"],
            [f"{SCRIPTS}/train_me.py", "--epochs", "3", "a b", "$$(RANK) $$x"],
        ),
        (["plain"], [f"{SCRIPTS}/train_me.py", "plain"]),
    ],
)
def test_arguments_reach_the_script_unchanged(written, words, command):
    (container,) = pod(written(*words))["containers"]

    assert container["command"] == ["ripieno", "run", *command]


def test_a_program_of_the_image_is_not_included(tmp_path, capsys):
    for words, command, name in (
        (["/app/Main.py", "--script-in-image"], ["/app/Main.py"], "main"),
        (["-m", "pack.age.it_is"], ["-m", "pack.age.it_is"], "it-is"),
    ):
        assert main(["kubernetes", *words, "--workers", "2", "--image", "here/it:1"]) == 0
        resources = {each["kind"]: each for each in yaml.safe_load_all(capsys.readouterr().out)}
        (container,) = pod(resources)["containers"]
        assert container["command"] == ["ripieno", "run", *command]
        assert "ConfigMap" not in resources and "volumes" not in pod(resources)
        assert resources["Job"]["metadata"]["name"] == name


def test_options_reach_the_pods(written):
    resources = written(
        *("--name", "gang", "--namespace", "team", "--cpu", "2500m", "--memory", "4Gi", "--port", "4000"),
        *("--image-pull-policy", "Never", "--env", "A=1e3", "-e", "B=x=$(RANK)", "--node-selector", "disk=ssd"),
        *("--spread", "kubernetes.io/hostname", "--racks", "topology.kubernetes.io/zone", "--claim", "data:/data"),
        *("--rendezvous-timeout", "30"),
    )

    assert {(each["metadata"]["name"], each["metadata"]["namespace"]) for each in resources.values()} == {
        ("gang", "team")
    }
    spec, described = pod(resources), variables(resources)
    (container,) = spec["containers"]
    amounts = {"cpu": "2500m", "memory": "4Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["imagePullPolicy"] == "Never"
    assert container["ports"][0]["containerPort"] == resources["Service"]["spec"]["ports"][0]["port"] == 4000
    assert (described["MASTER_PORT"], described["A"], described["B"]) == ("4000", "1e3", "x=$$(RANK)")
    assert described["RACK"] == {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}
    assert described["RIPIENO_RENDEZVOUS_TIMEOUT_S"] == "30"
    assert spec["nodeSelector"] == {"disk": "ssd"}
    (constraint,) = spec["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["labelSelector"]["matchLabels"] == resources["Service"]["spec"]["selector"]
    assert spec["volumes"][1]["persistentVolumeClaim"] == {"claimName": "data"}
    assert container["volumeMounts"][1] == {"name": spec["volumes"][1]["name"], "mountPath": "/data"}


def test_threads_are_reported_to_the_rank_and_to_its_libraries(written):
    described = variables(written("--threads", "3", "--cpu", "8"))

    assert (described["RIPIENO_THREADS"], described["OMP_NUM_THREADS"]) == ("3", "3")
    # A rank itself determines the CPUs of its pod.
    assert not {"RIPIENO_THREADS", "OMP_NUM_THREADS"} & set(variables(written("--cpu", "8")))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--image", ""], "--image='': expected the name of an image"),
        (["--image", " it:1"], "--image=' it:1'"),
        (["--rendezvous-timeout", "0"], "'--rendezvous-timeout': 0 is not in the range"),
        (["--name", "Train"], "--name='Train': expected lower-case letters, digits and hyphens, a letter first"),
        (["--name", "9train"], "a letter first and no hyphen last"),
        (["--name", "train-"], "--name='train-'"),
        (["--name", "a.b"], "--name='a.b'"),
        (["--name", 62 * "a"], f"makes the name of a pod, {62 * 'a'}-2, which has 64 characters; expected at most 63"),
        (["--name", 50 * "a", "--jobset"], f"{50 * 'a'}-rank-0-2-abcde, which has 65 characters"),
        (["--namespace", "My"], "--namespace='My'"),
        (["--namespace", 64 * "a"], "has 64 characters; expected at most 63"),
        (["--secret", "a..b"], "--secret='a..b'"),
        (["--workers", "0"], "--workers=0: expected 1 to 100000"),
        (["--workers", "100001"], "--workers=100001"),
        (["--port", "65536"], "--port=65536: expected 1 to 65535"),
        (["--cpu", "two"], "--cpu='two': expected an amount as Kubernetes writes it, such as 2, 500m or 4Gi"),
        (["--memory", "0"], "--memory='0'"),
        (["--memory", "4GB"], "--memory='4GB'"),
        (["--env", "RANK=3"], "--env=RANK: this command sets that variable"),
        (["--env", "RIPIENO_TOKEN=x"], "--env=RIPIENO_TOKEN"),
        (["--env", "A B=x"], "--env='A B'"),
        (["--env", "A"], "'A': expected two values separated by '='"),
        (["--node-selector", "a b=c"], "--node-selector='a b'"),
        (["--node-selector", "a=b c"], "--node-selector=a=b c"),
        (["--spread", "/zone"], "--spread='/zone'"),
        (["--racks", "zone']"], '--racks="zone'),
        (["--claim", "data:relative"], "--claim=data:relative: expected NAME:PATH with an absolute path"),
        (["--claim", "data"], "'data': expected two values separated by ':'"),
        (["--claim", "a:/x", "--claim", "b:/x/"], "--claim=b:/x/: something else is mounted there"),
        (["--claim", f"a:{SCRIPTS}"], "something else is mounted there"),
        (["--claim", "a:/x", "--claim", "a:/y"], "--claim: a is given twice"),
        (["--env", "A=1", "--env", "A=2"], "--env: A is given twice"),
        (["--restarts", "2"], "--restarts is for --jobset"),
    ],
)
def test_manifests_that_kubernetes_would_reject_are_rejected(tmp_path, capsys, words, sentence):
    (tmp_path / "train.py").write_text(SCRIPT)

    code = main(["kubernetes", str(tmp_path / "train.py"), "--workers", "3", "--image", "here/it:1", *words])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_a_script_with_an_invalid_job_name_needs_a_name(tmp_path, capsys):
    (tmp_path / "01_train.py").write_text(SCRIPT)
    words = ["kubernetes", str(tmp_path / "01_train.py"), "--workers", "2", "--image", "here/it:1"]

    assert main(words) == 2
    assert "--name='01-train': expected lower-case letters" in capsys.readouterr().err
    assert main([*words, "--name", "train"]) == 0


def test_scripts_that_no_configmap_takes_are_refused(tmp_path, capsys):
    for name, content, sentence in (
        (
            "large.py",
            b"#" * (1 << 20) + b"\n",
            "large.py has 1048577 bytes, and a script in a manifest may have at most 1048576",
        ),
        ("latin.py", b"# \xe4\n", "latin.py: expected text in UTF-8; put it into the image and use --script-in-image"),
        ("my train.py", b"", "'my train.py': the name of a script that comes with the manifest may have letters"),
    ):
        (tmp_path / name).write_bytes(content)
        code = main(["kubernetes", str(tmp_path / name), "--workers", "2", "--image", "here/it:1"])
        out, err = capsys.readouterr()
        assert (code, out) == (2, "") and sentence in err
    (tmp_path / "just.py").write_bytes(b"#" * (1 << 20))
    assert main(["kubernetes", str(tmp_path / "just.py"), "--workers", "2", "--image", "here/it:1"]) == 0


def test_a_manifest_is_checked_also_without_the_command():
    with pytest.raises(InputError, match="--threads=0: expected >= 1"):
        Manifest(name="a", image="b", workers=1, target="c", threads=0)
