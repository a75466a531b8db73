"""The command `ripieno`. Exit codes: 0 done, 1 failed while running, 2 wrong input or usage, 130 interrupted."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

import click

from ripieno import output
from ripieno.errors import InputError, RipienoError

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
SIGNAL_BASE = 128

#: Where each command lives. Commands are imported when they are called for: some bring large libraries with them.
COMMANDS = {
    "bench": "ripieno.cli.bench:bench_command",
    "bfs": "ripieno.cli.vertices:bfs_command",
    "components": "ripieno.cli.vertices:components_command",
    "demo": "ripieno.cli.demo:demo_command",
    "diameter": "ripieno.cli.vertices:diameter_command",
    "doctor": "ripieno.launch.cli:doctor_command",
    "explain": "ripieno.cli.explain:explain_command",
    "features": "ripieno.cli.features:features_command",
    "kmeans": "ripieno.cli.kmeans:kmeans_command",
    "lab": "ripieno.cli.lab:lab_command",
    "pagerank": "ripieno.cli.pagerank:pagerank_command",
    "packets": "ripieno.cli.packets:packets_command",
    "run": "ripieno.launch.cli:run_command",
    "trace": "ripieno.cli.trace:trace_command",
}


class LazyGroup(click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(import_module(module), name)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ripieno", message="%(prog)s %(version)s")
def cli() -> None:
    """Iterative analytics by many workers: cluster vectors, rank vertices, describe pictures, run your own programs."""


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; what went wrong is told in a sentence."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = cli.main(args, prog_name="ripieno", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _tell("interrupted", INTERRUPTED)
    except InputError as error:
        return _tell(str(error), WRONG_INPUT)
    except RipienoError as error:
        return _tell(str(error), FAILED)
    except OSError as error:
        return _tell(output.explain(error), FAILED)
    except MemoryError as error:
        return _tell(f"out of memory: {error}", FAILED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(message: str, code: int) -> int:
    click.echo(f"ripieno: {message}", err=True)
    return code


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    # Where in the code a warning comes from is nothing to a user of the command.
    click.echo(f"ripieno: {message}", err=True)


def _terminate(number: int, frame: FrameType | None) -> None:
    # An exception, so that workers are ended and unfinished files removed on the way out.
    sys.exit(SIGNAL_BASE + number)
