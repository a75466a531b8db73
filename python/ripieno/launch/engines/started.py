"""Provide ranks that an external launcher, `srun` or `mpirun`, starts on behalf of an engine.

The launcher runs ``python -m ripieno.launch.engines.started`` once per rank and passes on its environment. The
environment contains the invitation, which a rank removes first. All ranks end with the launcher. The launcher reports a
failed rank on its standard error.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ripieno.errors import EngineError, RendezvousError
from ripieno.launch.engine.contract import Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.limits import LEAVE_S, SHUTDOWN_S
from ripieno.launch.member import serve
from ripieno.launch.process import processes
from ripieno.launch.script import environment, launchers

#: Environment variable with the invitation, pickled, in base64.
VARIABLE = "RIPIENO_INVITATION"
#: Environment variables that this module sets for the ranks.
VARIABLES = (VARIABLE, *processes.THREAD_VARIABLES)


def program(name: str, engine: str) -> str:
    """Return the path of a launcher's program."""
    found = shutil.which(name)
    if found is None:
        raise EngineError(f"engine={engine!r} needs {name}, which is not on the path of this process")
    return found


class StartedRun(Run):
    """The process of a launcher, and the ranks that it has started.

    Parameters
    ----------
    command : sequence of str
        Command line of the launcher. The command of a rank is appended.
    invitation : Invitation
    failure : str
        Regular expression of a line of the launcher's standard error that reports a failure, with the groups ``rank``
        and ``cause``.
    wrapper : sequence of str
        Command that runs a rank; the rank's own command is appended. It may append an argument for the rank: the id of
        the process that the rank ends with.
    variables : mapping of str to str, optional
        Additional environment variables of the launcher.
    """

    def __init__(
        self,
        command: Sequence[str],
        invitation: Invitation,
        failure: str,
        wrapper: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._name = os.path.basename(command[0])
        self._failure = failure
        text = base64.b64encode(pickle.dumps(invitation)).decode()
        # If this process is a rank of another job, its ranks must not inherit the variables of that job.
        own = (*environment.VARIABLES, *launchers.MPI_VARIABLES)
        kept = {name: value for name, value in os.environ.items() if name not in own}
        threads = processes.thread_environment(invitation.threads)
        environ = {**kept, **processes.package_path(), **threads, **(variables or {}), VARIABLE: text}
        rank = [sys.executable, "-P", "-m", "ripieno.launch.engines.started"]
        self._process = subprocess.Popen(
            processes.wrapped_to_die_with_parent([*command, *wrapper, *rank]),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ,
            # Ctrl-C reaches this process only, which then ends the launcher.
            start_new_session=True,
        )
        self._watch = threading.Thread(target=self._listen, name=f"ripieno-{self._name}", daemon=True)
        self._watch.start()

    def end(self) -> None:
        """Wait for the launcher; if it does not exit, ask it to end its ranks, then kill it."""
        processes.end([self._process], grace_s=LEAVE_S, step_s=SHUTDOWN_S)
        self._watch.join(SHUTDOWN_S)

    def _listen(self) -> None:
        last = ""
        assert self._process.stderr is not None, "it is a pipe"
        with self._process.stderr as pipe:
            for line in pipe:
                text = line.decode(errors="replace")
                failure = failure_in(text, self._failure)
                if failure is not None:
                    self.failed(*failure)
                last = text.strip(" -\n") or last
                # Standard error may be missing or closed, which must not block the ranks.
                with suppress(AttributeError, OSError, ValueError):
                    sys.stderr.write(text)
        status = processes.wait_for_end(self._process)
        if status:
            self.failed(None, f"{self._name}: {processes.ending(status)}: {last}")


def failure_in(line: str, pattern: str) -> tuple[int | None, str] | None:
    """Return the rank, if it is named, and the cause in a line that `pattern` describes; None for other lines."""
    found = re.search(pattern, line)
    if found is None:
        return None
    return None if found["rank"] is None else int(found["rank"]), found["cause"].strip()


def main() -> None:
    """Run a rank of the job that sent the invitation in the environment."""
    if len(sys.argv) > 1:
        processes.die_with_parent(int(sys.argv[1]))
    place = launchers.detect(os.environ)
    text = os.environ.pop(VARIABLE, None)
    if place is None or text is None:
        sys.exit(f"ripieno: no launcher has started this process as a rank, or it has not passed {VARIABLE} on")
    invitation = pickle.loads(base64.b64decode(text))
    has_left = threading.Event()

    def on_disconnect() -> None:
        # This process belongs to the rank alone, so it may exit in any state of the program.
        if not has_left.wait(LEAVE_S):
            os._exit(1)

    try:
        serve(invitation, place.rank, attempt=place.job or "", on_disconnect=on_disconnect)
    except RendezvousError as error:
        sys.exit(f"ripieno: {error}")
    except EngineError:
        # The caller of the job gets the error.
        sys.exit(1)
    finally:
        has_left.set()


if __name__ == "__main__":
    main()
