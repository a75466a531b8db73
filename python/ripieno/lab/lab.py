"""Provide `Lab`: create, use and remove an emulated cluster."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from ripieno import log
from ripieno.errors import InputError, LabError
from ripieno.lab import enter, kernel, links, registry, wiring
from ripieno.lab.cluster_spec import ClusterSpec, LabHost, bits_per_s
from ripieno.lab.guard import Guard
from ripieno.lab.links import Counters
from ripieno.lab.run import LabProgram, run

# Counter values at the start of counting.
COUNTERS = "counters.json"
# Numbers the labs of this process that have no given name.
_unnamed = itertools.count()


class Lab:
    """An emulated cluster. It exists inside a ``with`` statement, which removes it completely at the end.

    Parameters
    ----------
    racks
        Number of racks, 1 to 250.
    hosts
        Number of hosts per rack, 1 to 250, and at most 512 in all.
    rate
        Rate of each direction of a host's network link, in the syntax of ``tc``: "100mbit".
    uplink
        Uplink rate of a rack in each direction. Default: the sum of its hosts' rates.
    name
        Name for use by other processes; by default a new one.

    Attributes
    ----------
    hosts : tuple of LabHost
        All hosts, rack by rack.

    Raises
    ------
    LabError
        On entering: if this machine cannot emulate a cluster, or a lab with this name exists.

    Examples
    --------
    >>> import sys
    >>> from ripieno.lab import Lab
    >>> with Lab(racks=2, hosts=2, rate="100mbit", uplink="100mbit") as lab:       # doctest: +SKIP
    ...     lab.run([sys.executable, "-c", "import ripieno as rp; print(rp.init().allgather(1))"])
    0
    """

    def __init__(
        self,
        racks: int = 1,
        hosts: int = 8,
        rate: str = "100mbit",
        uplink: str | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self.spec = ClusterSpec(racks, hosts, rate, uplink)
        self.name = registry.check_name(f"pid{os.getpid()}_{next(_unnamed)}" if name is None else name)
        self._prefix = registry.prefix(self.name)
        self._ending = ExitStack()

    @classmethod
    def named(cls, name: str) -> Lab:
        """Return the existing lab with this name.

        Raises
        ------
        LabError
            If it does not exist or is incomplete.
        """
        kernel.require_rights()
        record = registry.existing(registry.check_name(name))
        if record.spec is None or registry.is_orphan(name):
            raise LabError(f"the lab {name!r} is incomplete: ripieno lab down --name {name}")
        shape = record.spec
        return cls(shape.racks, shape.hosts_per_rack, shape.rate, shape.uplink, name=name)

    @property
    def hosts(self) -> tuple[LabHost, ...]:
        """Return all hosts, rack by rack."""
        return self.spec.hosts

    def up(self) -> None:
        """Create the lab. It exists until `down`, also after the end of this process."""
        self._make()
        record = registry.read(self.name)
        assert record is not None, "a lab that was just made is registered"
        registry.write(self.name, replace(record, owner=None))

    def down(self) -> int:
        """End every process inside, remove everything, and return the number of processes."""
        kernel.require_rights()
        return registry.remove(self.name)

    def __enter__(self) -> Lab:
        with ExitStack() as ending:
            self._make(ending)
            self._ending = ending.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def command(self, host: LabHost, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in `host`: with its network, host name, /etc/hosts and /sys."""
        namespace = kernel.NAMESPACES / f"{self._prefix}{host.name}"
        hosts_file = registry.hosts_file(self.name)
        start = [sys.executable, "-I", "-S", str(Path(enter.__file__).resolve())]
        rack = self.spec.rack_names[host.rack]
        return [*start, str(namespace), host.name, rack, str(hosts_file), *command]

    def run(
        self,
        command: Sequence[str],
        ranks_per_host: int = 1,
        first: int | None = None,
        timeout_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        on: Sequence[str] | None = None,
        prefix: bool | None = None,
        keep_going: bool = False,
    ) -> int:
        """Run `command` as ranks on the hosts, and wait for them.

        Each rank gets the variables that `ripieno.init` reads, LOCAL_RANK, and RACK. No process of any rank outlives
        the call, or this process.

        Parameters
        ----------
        command
            Program and arguments.
        ranks_per_host
            Number of ranks per host. Ranks of one host have consecutive numbers.
        first, on
            Restrict the run to the first hosts, by number, or to given hosts, by name.
        timeout_s
            Time limit in seconds. All ranks are ended when it expires.
        environment
            Variables to set in addition to this process's own.
        prefix
            Whether to mark lines of output with their host; by default if there are several ranks.
        keep_going
            Let the other ranks continue when one fails, instead of ending them.

        Returns
        -------
        int
            0 if all ranks succeed, 124 after a timeout, else the exit code of the rank that failed first (128 +
            signal if it was killed). Ranks that stop because another failed end with 1, so any other code takes
            precedence.
        """
        if first is not None and on is not None:
            raise InputError("first and on: expected one of the two")
        if first is not None and not 1 <= first <= len(self.hosts):
            raise InputError(f"first={first}: expected 1 to {len(self.hosts)}, the hosts of this lab")
        chosen = self.hosts[:first] if on is None else [self.host(name) for name in on]
        if ranks_per_host < 1:
            raise InputError(f"ranks_per_host={ranks_per_host}: expected >= 1")
        if not command or not chosen or len(set(chosen)) < len(chosen):
            raise InputError("a run needs a command, and hosts without repetition")
        program = LabProgram(
            command,
            chosen,
            ranks_per_host,
            environment or {},
            prefix=len(chosen) * ranks_per_host > 1 if prefix is None else prefix,
            timeout_s=timeout_s,
            keep_going=keep_going,
        )
        return run(program, lambda host: self._prefix + host.name, self.command)

    def host(self, name: str) -> LabHost:
        """Return the host with this name or address."""
        for host in self.hosts:
            if name in (host.name, host.address):
                return host
        raise InputError(f"host={name!r}: this lab has {self.hosts[0].name} … {self.hosts[-1].name}")

    def counters(self) -> dict[str, Counters]:
        """Return the counters of every network link since the start of the lab or `reset_counters`, by host or rack."""
        start = registry.load(self.name, COUNTERS) or {}
        now = links.read_counters(self._prefix, self.spec)
        return {name: counters - Counters(**start.get(name, {})) for name, counters in now.items()}

    def reset_counters(self) -> None:
        """Reset the counters of every network link to zero."""
        now = links.read_counters(self._prefix, self.spec)
        registry.store(self.name, COUNTERS, {name: asdict(counters) for name, counters in now.items()})

    def fail(self, name: str, *, kill: bool = False) -> int:
        """Disconnect a host's network link or a rack's uplink: traffic stops, and connections stay open for some time.

        Parameters
        ----------
        name
            Name of a host, or of a rack: "rack0".
        kill
            Also kill all processes on that host, or on all hosts of that rack, as a power failure does.

        Returns
        -------
        int
            Number of killed processes.
        """
        links.disconnect(self._prefix, [self._link(name)])
        if not kill:
            return 0
        behind = links.hosts_behind(self.spec, self._link(name))
        return kernel.kill_inside(self._prefix + host.name for host in behind)

    def heal(self, name: str) -> None:
        """Reconnect the network link of a host, or the uplink of a rack."""
        links.connect(self._prefix, [self._link(name)])

    def set_rate(self, name: str, rate: str) -> None:
        """Change the rate of both directions of a host's network link, such as "20mbit"."""
        wiring.set_rate(self._prefix, self.spec, self.host(name), bits_per_s("rate", rate))

    def disconnected(self) -> set[str]:
        """Return the names of the disconnected links."""
        return links.disconnected(self._prefix, self.spec)

    #: Former name of `disconnected`.
    silent = disconnected

    def remote_shell(self) -> str:
        """Return a shell script that runs a command in a host, by name or address, like ``ssh HOST COMMAND…``."""
        cases = []
        for host in self.hosts:
            words = shlex.join(self.command(host, ["sh", "-c"]))
            cases.append(f'{host.name}|{host.address}) exec {words} "$*" ;;')
        skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
        choose = 'case "$host" in\n' + "\n".join(cases) + '\nesac\necho "no such host: $host" >&2; exit 1'
        return f"#!/bin/sh\n{skip_options}\nhost=$1; shift\n{choose}\n"

    def _link(self, name: str) -> str:
        if name in self.spec.rack_names:
            return name
        return self.host(name).name

    def _make(self, ending: ExitStack | None = None) -> None:
        """Make the lab. After a failure or interruption, remove everything."""
        reason = kernel.missing_requirement()
        if reason is not None:
            raise LabError(reason)
        warning = self.spec.warning()
        if warning is not None:
            log.warn(warning)
        registry.claim(self.name, self.spec)
        try:
            registry.write_hosts_file(self.name, self.spec)
            if ending is not None:
                ending.enter_context(Guard(self.name))
                ending.callback(registry.remove, self.name)
            wiring.build(self._prefix, self.spec)
        except BaseException:
            registry.remove(self.name)
            raise
