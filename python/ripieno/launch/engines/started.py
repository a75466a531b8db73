"""Ranks that a launcher's program starts: `srun` or `mpirun` as an engine's hand.

The program runs ``python -m ripieno.launch.engines.started`` once per rank, and passes its environment on to all of
them, the invitation in it, which a rank takes out first of all. The program's end is the end of all; what it says of a
rank that has failed is on its standard error.
"""

from __future__ import annotations

import base64
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ripieno.errors import EngineError, RendezvousError
from ripieno.launch.engine.contract import Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.member import serve
from ripieno.launch.process import processes
from ripieno.launch.script import environment, launchers

#: The invitation, pickled, in base64.
VARIABLE = "RIPIENO_INVITATION"
#: What ranks find in their environment that this module has put there.
VARIABLES = (VARIABLE, *processes.THREAD_VARIABLES)
# Ranks that were told to leave, or whose job is gone, have this long to do so, and then the launcher to end them.
LEAVE_S = 2.0
END_S = 5.0
# Commands that only ask the launcher, or what stands behind it, are answered within this.
ANSWER_S = 20.0

#: Rank and cause in a line of a launcher's, or None if it tells of nothing.
Account = Callable[[str], tuple[int | None, str] | None]


def program(name: str, engine: str) -> str:
    """The path of a launcher's program."""
    found = shutil.which(name)
    if found is None:
        raise EngineError(f"engine={engine!r} needs {name}, which is not on the path of this process")
    return found


class StartedRun(Run):
    """A launcher's process, and the ranks that it has started.

    Parameters
    ----------
    command : sequence of str
        The launcher with its options, to which the command of a rank is added.
    invitation : Invitation
    account_of : callable
        What a line on the launcher's standard error says of a rank that has failed.
    wrapper : sequence of str
        A command that runs a rank, whose own command is added. It may give the rank an argument: the number of the
        process that it ends with.
    variables : mapping of str to str, optional
        More of the launcher's environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        invitation: Invitation,
        account_of: Account,
        wrapper: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._name = os.path.basename(command[0])
        self._account_of = account_of
        text = base64.b64encode(pickle.dumps(invitation)).decode()
        # What this process may be itself, as a rank of another job, its ranks are not.
        own = (*environment.VARIABLES, *launchers.MPI_VARIABLES)
        kept = {name: value for name, value in os.environ.items() if name not in own}
        threads = processes.thread_environment(invitation.threads)
        environ = {**kept, **processes.package_path(), **threads, **(variables or {}), VARIABLE: text}
        rank = [sys.executable, "-P", "-m", "ripieno.launch.engines.started"]
        self._process = subprocess.Popen(
            processes.ended_with_this([*command, *wrapper, *rank]),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ,
            # Ctrl-C is for this process, which ends the launcher.
            start_new_session=True,
        )
        self._watch = threading.Thread(target=self._listen, name=f"ripieno-{self._name}", daemon=True)
        self._watch.start()

    def end(self) -> None:
        """Wait for the launcher; one that does not end is told to end its ranks, and then killed."""
        processes.end([self._process], patience_s=LEAVE_S, step_s=END_S)
        self._watch.join(END_S)

    def _listen(self) -> None:
        last = ""
        assert self._process.stderr is not None, "it is a pipe"
        with self._process.stderr as pipe:
            for line in pipe:
                text = line.decode(errors="replace")
                account = self._account_of(text)
                if account is not None:
                    self.failed(*account)
                last = text.strip(" -\n") or last
                # Whoever has none, or has closed it, does not want to read it; the ranks must not be held up.
                with suppress(AttributeError, OSError, ValueError):
                    sys.stderr.write(text)
        status = processes.wait_for_end(self._process)
        if status:
            self.failed(None, f"{self._name}: {processes.ending(status)}: {last}")


def matching(pattern: str) -> Account:
    """An account by a regular expression with the groups ``rank`` and ``cause``."""

    def account_of(line: str) -> tuple[int | None, str] | None:
        found = re.search(pattern, line)
        if found is None:
            return None
        return None if found["rank"] is None else int(found["rank"]), found["cause"].strip()

    return account_of


def main() -> None:
    """Be a rank of the job that the invitation in the environment is to."""
    if len(sys.argv) > 1:
        processes.die_with(int(sys.argv[1]))
    place = launchers.detect(os.environ)
    text = os.environ.pop(VARIABLE, None)
    if place is None or text is None:
        sys.exit(f"ripieno: no launcher has started this process as a rank, or it has not passed {VARIABLE} on")
    invitation = pickle.loads(base64.b64decode(text))
    left = threading.Event()

    def hung_up() -> None:
        # Whatever the program is doing: this process is the rank's own.
        if not left.wait(LEAVE_S):
            os._exit(1)

    try:
        serve(invitation, place.rank, attempt=place.job or "", hung_up=hung_up)
    except RendezvousError as error:
        sys.exit(f"ripieno: {error}")
    except EngineError:
        # The caller of the job knows.
        sys.exit(1)
    finally:
        left.set()


if __name__ == "__main__":
    main()
