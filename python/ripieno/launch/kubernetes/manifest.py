"""Provide manifests for Kubernetes: a program as an Indexed Job, or a JobSet, with one pod per rank.

Pods find rank 0 by a DNS name from a headless Service. A pod's index is its rank. The token consists of a Secret and
the Job's UID, so pods of a deleted Job never join pods of its successor.
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
# Mount path of a script that is part of the manifest.
SCRIPTS = "/mnt/ripieno"
TOKEN_KEY = "token"
# Name of the container, and of the only Job of a JobSet.
RANK = "rank"
# Labels that Kubernetes sets on the pods of a Job.
UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
JOB_NAME = "batch.kubernetes.io/job-name"
# Variables of this module and of launchers. Kubernetes itself sets JOB_COMPLETION_INDEX, the rank.
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
    """The description of a program and its pods.

    Attributes
    ----------
    name
        Name of the Job or JobSet and its resources: a DNS label.
    image
        Container image with `ripieno`.
    workers
        Number of pods, each with one rank.
    target, arguments, module
        The program of every rank: a file of the image or, with `module`, the name of a module; and its arguments.
    script
        Text of the file `target`, which is then part of the manifest instead of the image.
    namespace
        Namespace; by default the namespace in use when the manifest is applied.
    cpu, memory
        Request and limit of a pod, in Kubernetes notation: ``"2"``, ``"500m"``; ``"4Gi"``.
    threads
        Threads of each rank; by default the number of cores of the pod.
    port
        Listening port of rank 0 while the ranks join.
    pull_policy
        ``Always``, ``IfNotPresent`` or ``Never``; by default Kubernetes decides by the image's tag.
    environment
        Additional variables of every rank.
    node_selector
        Required labels of nodes.
    spread
        Keys of node labels. Kubernetes spreads the pods as evenly as possible over the values of each label.
    rack_label
        A label of pods with the name of the rack.
    claims
        Mount paths of volumes by the names of their claims.
    secret
        A Secret with the token under ``token``; by default the manifest contains one with a new random token.
    rendezvous_timeout_s
        Maximum wait of the ranks for each other, in seconds. Pods may have to wait for a node, and pull their image.
    restarts
        Maximum number of restarts of all ranks by a JobSet; None for a plain Job, which never restarts.

    Raises
    ------
    InputError
        If Kubernetes would reject the manifest, for example names that are not DNS labels or a script above 1 MiB. The
        message names the command's options.
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
    rendezvous_timeout_s: int = 600
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
        names.check_number("--rendezvous-timeout", self.rendezvous_timeout_s, None)
        if self.script is not None:
            names.check_script(self.target, self.script)

    def resources(self) -> list[Resource]:
        """Return all resources, in the order of their dependencies."""
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
        # A JobSet creates its own Service.
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
            # A headless Service only provides DNS names for its pods ...
            "clusterIP": "None",
            # ... which must resolve before the pods are ready.
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
            # A single rank cannot be restarted. The rules record in the Job's status which pod failed, and how.
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
            # A JobSet sets its own subdomain.
            **({"subdomain": self.name} if self.restarts is None else {}),
            "restartPolicy": "Never",
            # Scripts then need no handler for SIGTERM, which the first process of a namespace otherwise ignores.
            "shareProcessNamespace": True,
            # No process in the pod uses the Kubernetes API, and ranks do not need the variables of Services.
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
        """Return pairs of a volume and its mount."""
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
            {"name": "RIPIENO_RENDEZVOUS_TIMEOUT_S", "value": str(self.rendezvous_timeout_s)},
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
        # JobSet checks the length of the pod's name, a Job only the length of its host name.
        return f"{self._job_name}-{self.workers - 1}" + ("" if self.restarts is None else "-abcde")


def _literally(text: str) -> str:
    """Escape ``$(NAME)``, which Kubernetes otherwise replaces by variables in commands and values."""
    return text.replace("$", "$$")
