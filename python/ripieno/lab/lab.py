"""A lab: made, used, taken down."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from ripieno.errors import InputError, LabError
from ripieno.lab import cables, enter, kernel, registry, wiring
from ripieno.lab.blueprint import Blueprint, Host, bits_per_s
from ripieno.lab.cables import Counters
from ripieno.lab.guard import Guard
from ripieno.lab.run import LabProgram, run

# Where the counters began.
COUNTERS = "counters.json"
# Numbers the labs of this process that nobody named.
_unnamed = itertools.count()


class Lab:
    """An emulated cluster, up inside a ``with`` statement; afterwards nothing of it is left, whatever ended the block.

    Parameters
    ----------
    racks
        How many racks, 1 to 250.
    hosts
        How many hosts per rack, 1 to 250, and 512 in all at most.
    rate
        Of each direction of a host's cable, as ``tc`` writes it: "100mbit".
    uplink
        Rate of each direction of a rack's uplink; by default the sum of its hosts' rates.
    name
        Its name for other processes; by default a new one.

    Attributes
    ----------
    hosts : tuple of Host
        All hosts, rack by rack.

    Raises
    ------
    LabError
        On entering: if this machine cannot emulate a cluster, or there is a lab of this name already.

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
        self.blueprint = Blueprint(racks, hosts, rate, uplink)
        self.name = registry.check_name(f"pid{os.getpid()}_{next(_unnamed)}" if name is None else name)
        self._prefix = registry.prefix(self.name)
        self._ending = ExitStack()

    @classmethod
    def named(cls, name: str) -> Lab:
        """The lab of this name, which is up already.

        Raises
        ------
        LabError
            If there is none, or it is incomplete.
        """
        kernel.require_rights()
        record = registry.existing(registry.check_name(name))
        if record.blueprint is None or registry.is_orphan(name):
            raise LabError(f"of the lab {name!r} only remains are left: ripieno lab down --name {name}")
        shape = record.blueprint
        return cls(shape.racks, shape.hosts_per_rack, shape.rate, shape.uplink, name=name)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts, rack by rack."""
        return self.blueprint.hosts

    def up(self) -> None:
        """Make it so that it stays until `down`, even beyond this process."""
        self._make()
        record = registry.read(self.name)
        assert record is not None, "a lab that was just made is registered"
        registry.write(self.name, replace(record, owner=None))

    def down(self) -> int:
        """End every process inside and remove everything; returns how many processes there were."""
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

    def command(self, host: Host, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` in `host`: its network, host name, /etc/hosts and /sys."""
        namespace = kernel.NAMESPACES / f"{self._prefix}{host.name}"
        hosts_file = registry.hosts_file(self.name)
        start = [sys.executable, "-I", "-S", str(Path(enter.__file__).resolve())]
        rack = self.blueprint.rack_names[host.rack]
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

        Each gets the variables that `ripieno.init` understands, LOCAL_RANK, and RACK. No process of any rank outlives
        the call, or this process.

        Parameters
        ----------
        command
            Program and arguments.
        ranks_per_host
            Ranks of one host have consecutive numbers.
        first, on
            Only this number of first hosts, or only these, by name.
        timeout_s
            Seconds after which all ranks are ended.
        environment
            Variables to set beside this process's own.
        prefix
            Whether to mark lines of output with their host; by default if there are several ranks.
        keep_going
            Let the others go on when a rank fails, instead of ending them.

        Returns
        -------
        int
            0 if all ranks end well, 124 if the time is over, else the exit code of the rank that failed first (128 +
            signal if it was killed); 1, with which ranks end that hear of a failure, gives way to any other.
        """
        if first is not None and on is not None:
            raise InputError("first and on: expected one of the two")
        if first is not None and not 1 <= first <= len(self.hosts):
            raise InputError(f"first={first}: expected 1 to {len(self.hosts)}, the hosts of this lab")
        chosen = self.hosts[:first] if on is None else [self.host(name) for name in on]
        if ranks_per_host < 1:
            raise InputError(f"ranks_per_host={ranks_per_host}: expected >= 1")
        if not command or not chosen or len(set(chosen)) < len(chosen):
            raise InputError("a run needs a command, and hosts of which each is named once")
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

    def host(self, name: str) -> Host:
        """The host of this name, or address."""
        for host in self.hosts:
            if name in (host.name, host.address):
                return host
        raise InputError(f"host={name!r}: this lab has {self.hosts[0].name} … {self.hosts[-1].name}")

    def counters(self) -> dict[str, Counters]:
        """The counters of every cable since the lab came up, or since `reset_counters`; uplinks are named as racks."""
        start = registry.load(self.name, COUNTERS) or {}
        now = cables.read_counters(self._prefix, self.blueprint)
        return {name: counters - Counters(**start.get(name, {})) for name, counters in now.items()}

    def reset_counters(self) -> None:
        """Let the counters of every cable begin at nothing again."""
        now = cables.read_counters(self._prefix, self.blueprint)
        registry.store(self.name, COUNTERS, {name: asdict(counters) for name, counters in now.items()})

    def fail(self, name: str, *, kill: bool = False) -> int:
        """Pull the cable of a host, or the uplink of a rack: it goes silent, and connections live on for a time.

        Parameters
        ----------
        name
            Of a host, or of a rack: "rack0".
        kill
            Also kill all processes on that host, or on all hosts of that rack, as a power failure does.

        Returns
        -------
        int
            How many processes were killed.
        """
        cables.pull(self._prefix, [self._cable(name)])
        if not kill:
            return 0
        behind = cables.hosts_behind(self.blueprint, self._cable(name))
        return kernel.kill_inside(self._prefix + host.name for host in behind)

    def heal(self, name: str) -> None:
        """Plug the cable of a host, or the uplink of a rack, in again."""
        cables.plug(self._prefix, [self._cable(name)])

    def set_rate(self, name: str, rate: str) -> None:
        """Give both directions of a host's cable another rate, such as "20mbit"."""
        wiring.set_rate(self._prefix, self.blueprint, self.host(name), bits_per_s("rate", rate))

    def silent(self) -> set[str]:
        """Names of the cables that are pulled."""
        return cables.silent(self._prefix, self.blueprint)

    def remote_shell(self) -> str:
        """A shell script that runs a command in a host, by name or address, as ``ssh HOST COMMAND…`` would."""
        cases = []
        for host in self.hosts:
            words = shlex.join(self.command(host, ["sh", "-c"]))
            cases.append(f'{host.name}|{host.address}) exec {words} "$*" ;;')
        skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
        choose = 'case "$host" in\n' + "\n".join(cases) + '\nesac\necho "no such host: $host" >&2; exit 1'
        return f"#!/bin/sh\n{skip_options}\nhost=$1; shift\n{choose}\n"

    def _cable(self, name: str) -> str:
        if name in self.blueprint.rack_names:
            return name
        return self.host(name).name

    def _make(self, ending: ExitStack | None = None) -> None:
        """Make it; if that fails or is interrupted, nothing is left."""
        reason = kernel.why_not()
        if reason is not None:
            raise LabError(reason)
        warning = self.blueprint.warning()
        if warning is not None:
            warnings.warn(warning, stacklevel=3)
        registry.claim(self.name, self.blueprint)
        try:
            registry.write_hosts_file(self.name, self.blueprint)
            if ending is not None:
                ending.enter_context(Guard(self.name))
                ending.callback(registry.remove, self.name)
            wiring.wire(self._prefix, self.blueprint)
        except BaseException:
            registry.remove(self.name)
            raise
