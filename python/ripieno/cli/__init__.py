"""The command `ripieno`. Exit codes: 0 success, 1 failure while running, 2 wrong input or usage, 130 interrupted.

`ripieno grep` exits with 0 if lines match, 1 if none match, and 2 after any error.
"""

from __future__ import annotations

import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from types import FrameType

import click

from ripieno.cli.command_line import COMMAND_LINE
from ripieno.errors import InputError, RipienoError
from ripieno.files import results
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.script import exit_message

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
#: Exit code of a failed run where 1 means that nothing was found.
FAILED_AS = {"grep": 2}
SIGNAL_BASE = 128

#: Module of each command. Commands are imported on use because some import large libraries.
COMMANDS = {
    "als": "ripieno.cli.als:als_command",
    "bench": "ripieno.cli.bench:bench_command",
    "bfs": "ripieno.cli.vertices:bfs_command",
    "components": "ripieno.cli.vertices:components_command",
    "demo": "ripieno.cli.demo:demo_command",
    "diameter": "ripieno.cli.vertices:diameter_command",
    "distribute": "ripieno.cli.distribute:distribute_command",
    "doctor": "ripieno.cli.run:doctor_command",
    "explain": "ripieno.cli.explain:explain_command",
    "features": "ripieno.cli.features:features_command",
    "grep": "ripieno.cli.grep:grep_command",
    "kmeans": "ripieno.cli.kmeans:kmeans_command",
    "kubernetes": "ripieno.cli.kubernetes:kubernetes_command",
    "lab": "ripieno.cli.lab:lab_command",
    "layout": "ripieno.cli.layout:layout_command",
    "pagerank": "ripieno.cli.pagerank:pagerank_command",
    "logistic": "ripieno.cli.logistic:logistic_command",
    "packets": "ripieno.cli.packets:packets_command",
    "mds": "ripieno.cli.mds:mds_command",
    "pca": "ripieno.cli.pca:pca_command",
    "predict": "ripieno.cli.predict:predict_command",
    "report": "ripieno.cli.report:report_command",
    "ridge": "ripieno.cli.ridge:ridge_command",
    "reproduce": "ripieno.cli.reproduce:reproduce_command",
    "run": "ripieno.cli.run:run_command",
    "simulate": "ripieno.cli.simulate:simulate_command",
    "split": "ripieno.cli.split:split_command",
    "topology": "ripieno.cli.topology:topology_command",
    "trace": "ripieno.cli.trace:trace_command",
    "tune": "ripieno.cli.tune:tune_command",
    "wordcount": "ripieno.cli.wordcount:wordcount_command",
}


class LazyGroup(click.Group):
    """A command group that imports its commands on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the command line for reports, which print it as the command that repeats them."""
        ctx.meta[COMMAND_LINE] = shlex.join(["ripieno", *args])
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; an unknown name raises a usage error with the most similar command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            similar = get_close_matches(args[0], COMMANDS, n=1)
            if not similar:
                raise
            raise click.UsageError(f"{error.message} Did you mean {similar[0]!r}?", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ripieno", message="%(prog)s %(version)s")
def cli() -> None:
    """Iterative analytics by many workers: cluster vectors, fit models, rank vertices, run your own programs."""


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed as one sentence."""
    command = next(iter(sys.argv[1:] if args is None else args), "")
    failed = FAILED_AS.get(command, FAILED)

    def fail(message: str, code: int) -> int:
        click.echo(f"ripieno: {message}", err=True)
        return code

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        # The source location of a warning does not help a user of the command.
        if exit_message.is_first_here():
            click.echo(f"ripieno: {message}", err=True)

    fill_standard_descriptors()
    # An inherited SIG_IGN would hide the exit status of child processes.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            code = cli.main(args, prog_name="ripieno", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if not exit_message.said_by_first():
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except InputError as error:
        # All ranks of a host find the same error in arguments and files, so only the first prints it.
        return WRONG_INPUT if exit_message.said_by_first() else fail(str(error), WRONG_INPUT)
    except RipienoError as error:
        return failed if exit_message.said_by(error) else fail(str(error), failed)
    except OSError as error:
        return fail(results.explain(error), failed)
    except MemoryError as error:
        return fail(f"out of memory: {error}", failed)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Exit by an exception, so that cleanup ends workers and removes unfinished files.
    sys.exit(SIGNAL_BASE + number)
