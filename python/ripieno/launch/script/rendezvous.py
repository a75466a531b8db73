"""Provide the rendezvous of ranks under a launcher: the choice of its place and of the shared token.

| given | rendezvous | token |
|---|---|---|
| RIPIENO_DIRECTORY | in that directory | RIPIENO_TOKEN, or from a file in it |
| RIPIENO_TOKEN, and the host of rank 0 | at rank 0's port | RIPIENO_TOKEN |
| all ranks are on one host | in a directory of the job under TMPDIR | from a file in it, always |
| an identity of the job | in a directory of the job in the user's home, which hosts share | from a file in it, always |

The host of rank 0 is MASTER_ADDR, or given by the launcher. Its port is MASTER_PORT, or derived from the identity.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripieno._native import MAKE_TOKEN, check_token
from ripieno.errors import RendezvousError
from ripieno.launch.process import processes
from ripieno.launch.process.interruption import exit_on_sigterm
from ripieno.launch.script import launchers, token_file
from ripieno.launch.script.launchers import LaunchedRank

# Below the ephemeral ports of operating systems, above the ports of most services.
_FIRST_PORT = 20_000
_PORT_COUNT = 10_000


@dataclass(frozen=True)
class RendezvousPlace:
    """The rendezvous of ranks: a store (host and port of rank 0), or a directory, which may belong to the job."""

    directory: Path = Path()
    own: bool = False
    store: tuple[str, int] | None = None


def choose(launched: LaunchedRank, variables: Mapping[str, str], job: str | None) -> RendezvousPlace:
    """Return where the ranks of `job` join; equal on all ranks.

    Raises
    ------
    RendezvousError
        If the variables are insufficient; the message names the missing ones.
    """
    has_token = bool(variables.get("RIPIENO_TOKEN"))
    if variables.get("RIPIENO_DIRECTORY"):
        return RendezvousPlace(Path(variables["RIPIENO_DIRECTORY"]))
    host = variables.get("MASTER_ADDR") or launched.root
    if has_token and host:
        return RendezvousPlace(store=(host, _port(launched, variables, job)))
    if job is None:
        raise RendezvousError(_missing_variables_text(launched, variables))
    if not launched.on_one_host:
        return RendezvousPlace(Path.home() / f"{_prefix(launched)}{_digest(launched, job).hex()[:16]}", own=True)
    # Other users can create folders there and know the job names. The name of the next folder must be unpredictable.
    digest = hmac.digest(token_file.secret_of_user(), _digest(launched, job), "sha256")
    return RendezvousPlace(Path(tempfile.gettempdir()) / f"{_prefix(launched)}{digest.hex()[:16]}", own=True)


@contextmanager
def joined(launched: LaunchedRank, variables: Mapping[str, str], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Yield the rendezvous options of `Communicator.connect`; leave the context after the ranks have joined."""
    job = launched.job or (_ancestor() if launched.launcher == launchers.PMI and launched.on_one_host else None)
    rendezvous = choose(launched, variables, job)
    token, secret = variables.get("RIPIENO_TOKEN", ""), variables.get("RIPIENO_SECRET", "")
    if token:
        check_token(token, "RIPIENO_TOKEN")
    if secret and token.startswith(f"{secret}."):
        # In pods the token consists of the secret and the known number of the attempt.
        check_token(secret, "RIPIENO_SECRET")
    with ExitStack() as stack:
        if rendezvous.store is not None:
            try:
                yield {"tcp_store": rendezvous.store, "token": token.encode()}
            except RendezvousError as error:
                if os.strerror(errno.EADDRINUSE) in str(error):
                    raise RendezvousError(f"{error}; set MASTER_PORT to another one, for all ranks") from None
                raise
            return
        try:
            stack.enter_context(_leaving_on_sigterm())
            if rendezvous.own and launched.rank == 0:
                token_file.remove_abandoned(rendezvous.directory.parent, _prefix(launched))
                stack.enter_context(token_file.directory_of_job(rendezvous.directory))
            elif launched.rank == 0:
                token_file.remove_abandoned_shared(rendezvous.directory)
            if rendezvous.own or not token:
                path = rendezvous.directory / ("token" if job is None else f"token-{_digest(launched, job).hex()[:16]}")
                token = stack.enter_context(
                    token_file.exchange_token(path, launched.rank, timeout_s, own=rendezvous.own)
                )
        except OSError as error:
            raise RendezvousError(
                f"rank {launched.rank}: the ranks cannot join in {rendezvous.directory}: {error}"
            ) from None
        yield {"directory": str(rendezvous.directory), "token": token.encode()}


def _port(launched: LaunchedRank, variables: Mapping[str, str], job: str | None) -> int:
    if variables.get("MASTER_PORT") and not launched.has_store:
        return launchers.number(variables, "MASTER_PORT")
    if job is None:
        raise RendezvousError(_missing_variables_text(launched, variables))
    return _FIRST_PORT + int.from_bytes(_digest(launched, job)[:4]) % _PORT_COUNT


@contextmanager
def _leaving_on_sigterm() -> Iterator[None]:
    """Turn a launcher's SIGTERM into an exception, so that all files of the rendezvous are removed."""
    if not processes.on_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    with exit_on_sigterm():
        yield


def _prefix(launched: LaunchedRank) -> str:
    """Return the prefix of the names of directories that belong to one job."""
    return f"{'' if launched.on_one_host else '.'}ripieno-{os.geteuid()}-"


def _digest(launched: LaunchedRank, job: str) -> bytes:
    return hashlib.sha256(f"{launched.launcher} {job}".encode()).digest()


def _missing_variables_text(launched: LaunchedRank, variables: Mapping[str, str]) -> str:
    known = [name for name in ("RIPIENO_TOKEN", "MASTER_ADDR", "MASTER_PORT") if variables.get(name)]
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "RIPIENO_TOKEN") if name not in known]
    rank_text = (
        f"rank {launched.rank} of {launched.world_size}, started by {launched.launcher}, cannot join the others: "
    )
    variables_text = (
        f"{', '.join(known)} set, but not {', '.join(missing)}" if known else f"{', '.join(missing)} not set"
    )
    how = f" ({MAKE_TOKEN} before the launcher starts, and see that it is passed on)"
    token = "" if "RIPIENO_TOKEN" in known else how
    return f"{rank_text}{variables_text}{token}; or set RIPIENO_DIRECTORY to a new directory that all hosts share"


def _ancestor() -> str | None:
    """Return an identity for a launcher without job ids: its process, the nearest ancestor that is not a rank."""
    pid = os.getppid()
    try:
        while _is_rank(pid):
            pid = _fields(pid)[1]
        return f"{pid} since {_fields(pid)[19]}"
    except FileNotFoundError:
        return None


def _is_rank(pid: int) -> bool:
    try:
        return b"PMI_RANK=" in Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return False


def _fields(pid: int) -> list[Any]:
    """Return the fields of /proc/PID/stat from the state on: field 1 is the parent, field 19 the start time."""
    state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [state, *map(int, rest)]
