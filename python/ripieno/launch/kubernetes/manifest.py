"""Manifests for Kubernetes: a program as an Indexed Job, or a JobSet, of one pod per rank.

Pods find rank 0 by the name that a headless Service gives it. A pod's index is its rank; the token comes from a Secret
and has the Job's UID added, so that pods of a Job that is gone never meet those of one that takes its place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ripieno.launch.kubernetes import names
from ripieno.launch.script.run import threads_environment

JOB_SET_API = "jobset.x-k8s.io/v1alpha2"
# Where a pod has the script that came with the manifest.
SCRIPTS = "/mnt/ripieno"
TOKEN_KEY = "token"
# The container, and in a JobSet the one Job.
RANK = "rank"
# What Kubernetes writes on the pods of a Job.
UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
JOB_NAME = "batch.kubernetes.io/job-name"
# Variables that this module sets, and those of launchers: Kubernetes sets JOB_COMPLETION_INDEX, which is the rank.
OWN_VARIABLES = frozenset(
    [
        "JOB_COMPLETION_INDEX",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RACK",
        "RANK",
        "RIPIENO_ATTEMPT",
        "RIPIENO_DIRECTORY",
        "RIPIENO_RENDEZVOUS_TIMEOUT_S",
        "RIPIENO_SECRET",
        "RIPIENO_TOKEN",
        "WORLD_SIZE",
    ]
)
Resource = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What Kubernetes shall run.

    Attributes
    ----------
    name
        Of the Job or JobSet, and of what belongs to it: a DNS label.
    image
        In which `ripieno` is installed.
    workers
        How many pods, one rank each.
    target, arguments, module
        What every rank runs: a file of the image or, with `module`, the name of a module; and its arguments.
    script
        Instead of a file of the image: the text of a file `target`, which comes with the manifest.
    namespace
        By default that of its creator.
    cpu, memory
        Of a pod, requested and at most, as Kubernetes writes them: ``"2"``, ``"500m"``; ``"4Gi"``.
    threads
        Of each rank; by default as many as the pod may use cores.
    port
        At which rank 0 listens while the ranks meet.
    pull_policy
        ``Always``, ``IfNotPresent`` or ``Never``; by default what Kubernetes does for the image's tag.
    environment
        More variables of every rank.
    node_selector
        Labels that a node must have.
    spread
        Labels of nodes over whose values the pods are spread as evenly as is possible.
    rack_label
        A label of pods that names the rack.
    claims
        Where the volumes of these claims are mounted, by the claim's name.
    secret
        A Secret that holds the token, as ``token``; by default the manifest has one, with a new random token.
    meet_within_s
        How many seconds the ranks wait for each other; pods may have to wait for a node, and pull their image.
    restarts
        How often the whole gang may be started anew, by a JobSet; None for a plain Job, which is not.

    Raises
    ------
    InputError
        If Kubernetes would not take it: names that are no DNS labels, a script of more than 1 MiB, and the like; in
        the words of the command's options.
    """

    name: str
    image: str
    workers: int
    target: str
    arguments: Sequence[str] = ()
    module: bool = False
    script: str | None = None
    namespace: str | None = None
    cpu: str | None = None
    memory: str | None = None
    threads: int | None = None
    port: int = 29500
    pull_policy: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    spread: Sequence[str] = ()
    rack_label: str | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    secret: str | None = None
    meet_within_s: int = 600
    restarts: int | None = None

    def __post_init__(self) -> None:
        names.check_label("--name", self.name)
        names.check_length("--name", self.name, self._longest_pod_name)
        names.check_image("--image", self.image)
        if self.namespace is not None:
            names.check_label("--namespace", self.namespace)
        if self.secret is not None:
            names.check_subdomain("--secret", self.secret)
        names.check_claims(self.claims, SCRIPTS)
        for option, quantity in (("--cpu", self.cpu), ("--memory", self.memory)):
            if quantity is not None:
                names.check_quantity(option, quantity)
        for option, label in [("--racks", self.rack_label), *(("--spread", each) for each in self.spread)]:
            if label is not None:
                names.check_label_key(option, label)
        for label, value in self.node_selector.items():
            names.check_label_key("--node-selector", label)
            names.check_label_value("--node-selector", label, value)
        names.check_variables(self.environment, OWN_VARIABLES)
        names.check_number("--workers", self.workers, names.PODS_MAX)
        names.check_number("--port", self.port, 65535)
        names.check_number("--threads", self.threads, None)
        names.check_number("--meet-within", self.meet_within_s, None)
        if self.script is not None:
            names.check_script(self.target, self.script)

    def resources(self) -> list[Resource]:
        """All resources, in the order in which they are needed."""
        return list(self._resources())

    def _resources(self) -> Iterator[Resource]:
        if self.secret is None:
            yield {
                **self._head("v1", "Secret"),
                "type": "Opaque",
                "stringData": {TOKEN_KEY: secrets.token_hex(32)},
            }
        if self.script is not None:
            yield {**self._head("v1", "ConfigMap"), "data": {self.target: self.script}}
        if self.restarts is not None:
            yield {**self._head(JOB_SET_API, "JobSet"), "spec": self._job_set()}
            return
        # A JobSet brings a Service of its own.
        yield {**self._head("v1", "Service"), "spec": self._service()}
        yield {**self._head("batch/v1", "Job"), "spec": self._job()}

    def _head(self, version: str, kind: str) -> Resource:
        namespace = {} if self.namespace is None else {"namespace": self.namespace}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": self.name, **namespace, "labels": self._labels},
        }

    @property
    def _labels(self) -> Resource:
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/managed-by": "ripieno"}

    def _service(self) -> Resource:
        return {
            # Without an address of its own the Service is just the names of its pods ...
            "clusterIP": "None",
            # ... which must find each other before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {JOB_NAME: self._job_name},
            "ports": [{"name": "rendezvous", "port": self.port}],
        }

    def _job_set(self) -> Resource:
        return {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": self.restarts},
            "replicatedJobs": [{"name": RANK, "replicas": 1, "template": {"spec": self._job()}}],
        }

    def _job(self) -> Resource:
        return {
            "completionMode": "Indexed",
            "completions": self.workers,
            "parallelism": self.workers,
            # A rank cannot come back alone. The rules add to the Job's status which pod failed, and how.
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": RANK, "operator": "NotIn", "values": [0]},
                    },
                    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": self._labels}, "spec": self._pod()},
        }

    def _pod(self) -> Resource:
        pod: Resource = {
            # A JobSet sets its own.
            **({"subdomain": self.name} if self.restarts is None else {}),
            "restartPolicy": "Never",
            # So that a script needs no handler of SIGTERM, which the first process of a namespace otherwise ignores.
            "shareProcessNamespace": True,
            # Nothing in the pod talks to Kubernetes, and variables of Services are not for ranks.
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
        }
        if self.node_selector:
            pod["nodeSelector"] = dict(self.node_selector)
        if self.spread:
            pod["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": label,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {JOB_NAME: self._job_name}},
                }
                for label in self.spread
            ]
        volumes = self._volumes()
        pod["containers"] = [self._container([mount for _, mount in volumes])]
        if volumes:
            pod["volumes"] = [volume for volume, _ in volumes]
        return pod

    def _container(self, mounts: list[Resource]) -> Resource:
        target = self.target if self.script is None else str(PurePosixPath(SCRIPTS, self.target))
        words = ["ripieno", "run", *(["-m"] if self.module else []), target, *self.arguments]
        container: Resource = {"name": RANK, "image": self.image}
        if self.pull_policy is not None:
            container["imagePullPolicy"] = self.pull_policy
        container["command"] = [_literally(word) for word in words]
        container["env"] = self._variables()
        container["ports"] = [{"name": "rendezvous", "containerPort": self.port}]
        amounts = {name: amount for name, amount in (("cpu", self.cpu), ("memory", self.memory)) if amount is not None}
        if amounts:
            container["resources"] = {"requests": amounts, "limits": dict(amounts)}
        if mounts:
            container["volumeMounts"] = mounts
        return container

    def _volumes(self) -> list[tuple[Resource, Resource]]:
        """Volumes, and where each is mounted."""
        volumes: list[tuple[Resource, Resource]] = []
        if self.script is not None:
            mount = {"name": "script", "mountPath": SCRIPTS, "readOnly": True}
            volumes.append(({"name": "script", "configMap": {"name": self.name}}, mount))
        for number, (claim, path) in enumerate(self.claims.items()):
            name = f"claim-{number}"
            volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            volumes.append((volume, {"name": name, "mountPath": path}))
        return volumes

    def _variables(self) -> list[Resource]:
        token = {"name": self.secret or self.name, "key": TOKEN_KEY}
        variables: list[Resource] = [
            {"name": "WORLD_SIZE", "value": str(self.workers)},
            {"name": "MASTER_ADDR", "value": f"{self._job_name}-0.{self.name}"},
            {"name": "MASTER_PORT", "value": str(self.port)},
            {"name": "RIPIENO_SECRET", "valueFrom": {"secretKeyRef": token}},
            {"name": "RIPIENO_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": UID}}},
            {"name": "RIPIENO_TOKEN", "value": "$(RIPIENO_SECRET).$(RIPIENO_ATTEMPT)"},
            {"name": "RIPIENO_RENDEZVOUS_TIMEOUT_S", "value": str(self.meet_within_s)},
        ]
        if self.rack_label is not None:
            path = f"metadata.labels['{self.rack_label}']"
            variables.append({"name": "RACK", "valueFrom": {"fieldRef": {"fieldPath": path}}})
        threads = {} if self.threads is None else threads_environment(self.threads)
        more = {"PYTHONUNBUFFERED": "1", **threads, **self.environment}
        return variables + [{"name": name, "value": _literally(value)} for name, value in more.items()]

    @property
    def _job_name(self) -> str:
        return self.name if self.restarts is None else f"{self.name}-{RANK}-0"

    @property
    def _longest_pod_name(self) -> str:
        # JobSet checks the name of the pod, a Job only that of its host.
        return f"{self._job_name}-{self.workers - 1}" + ("" if self.restarts is None else "-abcde")


def _literally(text: str) -> str:
    """Kubernetes puts variables in place of ``$(NAME)``, in commands and in values."""
    return text.replace("$", "$$")
