"""Pods without Kubernetes: processes on lab hosts, set up from a manifest as controllers and kubelet do.

Each pod gets only the command, the variables and the files of the manifest, nothing else of this process's environment.
Its resolver queries a simulated cluster name service, to which tests add names.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripieno.lab import Host, Lab, kernel, registry

Resource = dict[str, Any]
DOMAIN = "default.svc.cluster.local"
ZONE = "topology.kubernetes.io/zone"
#: /dev/shm size of a container without a mount there: too small for any data.
SHM = "64k"
_REFERENCE = re.compile(r"\$\$|\$\(([-._A-Za-z][-._A-Za-z0-9]*)\)")


@dataclass
class Pod:
    """A pod, as the kubelet starts it."""

    host: Host
    name: str
    domain_name: str
    command: list[str]
    variables: dict[str, str]
    files: dict[str, dict[str, str]]


def pods(resources: list[Resource], hosts: list[Host], uid: str) -> list[Pod]:
    """Return the pods of the Job or JobSet in `resources`; `uid` is the uid of the Job."""
    kinds = {each["kind"]: each for each in resources}
    if "JobSet" in kinds:
        owner = kinds["JobSet"]["metadata"]["name"]
        (replicated,) = kinds["JobSet"]["spec"]["replicatedJobs"]
        assert replicated["replicas"] == 1 and kinds["JobSet"]["spec"]["network"]["enableDNSHostnames"]
        job, name, subdomain = replicated["template"]["spec"], f"{owner}-{replicated['name']}-0", owner
    else:
        job, name = kinds["Job"]["spec"], kinds["Job"]["metadata"]["name"]
        subdomain = job["template"]["spec"]["subdomain"]
    assert job["completionMode"] == "Indexed" and job["completions"] == job["parallelism"] == len(hosts)
    made = []
    for index, host in enumerate(hosts):
        labels = {
            **job["template"]["metadata"].get("labels", {}),
            "batch.kubernetes.io/job-name": name,
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-completion-index": str(index),
            ZONE: f"zone-{host.rack}",
        }
        if "Service" in kinds:
            service = kinds["Service"]
            assert service["metadata"]["name"] == subdomain and service["spec"]["clusterIP"] == "None"
            assert service["spec"]["selector"].items() <= labels.items()
        fields = {f"metadata.labels['{key}']": value for key, value in labels.items()}
        made.append(_pod(kinds, job["template"]["spec"], host, f"{name}-{index}", subdomain, index, fields))
    return made


def _pod(
    kinds: Mapping[str, Resource],
    spec: Resource,
    host: Host,
    name: str,
    subdomain: str,
    index: int,
    fields: Mapping[str, str],
) -> Pod:
    (container,) = spec["containers"]
    variables: dict[str, str] = {}
    for each in container["env"]:
        variables[each["name"]] = (
            _expanded(each["value"], variables) if "value" in each else _looked_up(kinds, each["valueFrom"], fields)
        )
    variables["JOB_COMPLETION_INDEX"] = str(index)
    contents = {}
    for volume in spec.get("volumes", []):
        assert volume["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
        contents[volume["name"]] = kinds["ConfigMap"]["data"]
    return Pod(
        host,
        name,
        f"{name}.{subdomain}.{DOMAIN}",
        [_expanded(word, variables) for word in container["command"]],
        variables,
        {each["mountPath"]: contents[each["name"]] for each in container.get("volumeMounts", [])},
    )


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text)


def _looked_up(kinds: Mapping[str, Resource], source: Resource, fields: Mapping[str, str]) -> str:
    if "fieldRef" in source:
        return fields[source["fieldRef"]["fieldPath"]]
    reference = source["secretKeyRef"]
    assert kinds["Secret"]["metadata"]["name"] == reference["name"]
    return kinds["Secret"]["stringData"][reference["key"]]


@contextmanager
def running(lab: Lab, gang: list[Pod], name_server: str, folder: Path):
    """Run the processes of pods until the block ends."""
    resolver = folder / "resolv.conf"
    resolver.write_text(
        f"search {DOMAIN} svc.cluster.local cluster.local\nnameserver {name_server}\noptions ndots:5 timeout:1\n"
    )
    with ExitStack() as stack:
        children = []
        for pod in gang:
            child = subprocess.Popen(
                lab.command(pod.host, _start(pod, resolver, folder)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
            children.append(child)
        yield children


def _start(pod: Pod, resolver: Path, folder: Path) -> list[str]:
    """Return the command line that sets up the pod's view of files and then executes its command."""
    lines = [
        f"hostname {pod.name}",
        f"mount --bind {resolver} /etc/resolv.conf",
        f"mount -t tmpfs -o size={SHM} none /dev/shm",
    ]
    for number, (place, files) in enumerate(pod.files.items()):
        content = folder / f"{pod.name}-{number}"
        content.mkdir()
        for name, text in files.items():
            (content / name).write_text(text)
        # The kubelet makes the folder; here, only this pod's view has it.
        lines.append(f"mount -t tmpfs none {Path(place).parent} && mkdir {place} && mount --bind {content} {place}")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/", **pod.variables}
    words = [f"{name}={value}" for name, value in environment.items()]
    return ["sh", "-ec", "\n".join([*lines, 'exec env -i "$@"']), "sh", *words, *pod.command]


class NameService:
    """The cluster's name service at a host of a lab; a name does not resolve until `ready` returns True.

    Parameters
    ----------
    lab, host
        The service listens on this host, at port 53.
    records
        Addresses by name.
    ready
        Called at every query with the addresses of all clients that have queried that name.
    """

    def __init__(self, lab: Lab, host: Host, records: Mapping[str, str], ready: Callable[[set[str]], bool]) -> None:
        with kernel.inside(registry.prefix(lab.name) + host.name):
            self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind((host.address, 53))
        self._records = records
        self._ready = ready
        self.clients: dict[str, set[str]] = {}
        self.denied = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> NameService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # An empty query ends the service.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if not query:
                return
            self._socket.sendto(self._answer(query, client[0]), client)

    def _answer(self, message: bytes, client: str) -> bytes:
        name, end = _name(message)
        (kind,) = struct.unpack_from(">H", message, end)
        address = self._records.get(name)
        if address is not None:
            clients = self.clients.setdefault(name, set())
            if not self._ready(clients):
                self.denied += 1
                address = None
            clients.add(client)
        is_known, is_a = address is not None, kind == 1
        flags = 0x8180 | (0 if is_known else 3)
        head = message[:2] + struct.pack(">HHHHH", flags, 1, int(is_known and is_a), 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4) + socket.inet_aton(address or "0.0.0.0")
        return head + message[12 : end + 4] + (record if is_known and is_a else b"")


def _name(message: bytes) -> tuple[str, int]:
    """Return the name in a query, and the position of its end."""
    words, place = [], 12
    while length := message[place]:
        words.append(message[place + 1 : place + 1 + length].decode())
        place += 1 + length
    return ".".join(words).lower(), place + 1
