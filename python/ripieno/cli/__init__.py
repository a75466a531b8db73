"""The command `ripieno`. Exit codes: 0 success, 1 failure while running, 2 wrong input or usage, 130 interrupted.

`ripieno grep` exits with 0 if lines match, 1 if none match, and 2 after any error.
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
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

#: Command-line options by the parameter names that appear in error messages.
GRAPH_OPTIONS = {
    "format": "--format",
    "directed=False": "--undirected",
    "max_iter": "--max-iterations",
    "n_strings": "--strings",
    "tol": "--tolerance",
    "vertex_count": "--vertices",
    "weighted=False": "--unweighted",
    "weighted=True": "--weighted",
}
PCA_OPTIONS = {"n_components": "--components", "svd_solver": "--solver"}
TARGET_OPTIONS = {"y": "--target"}
LOGISTIC_OPTIONS = {"C": "--c", "max_iter": "--max-iter", "tol": "--tol", **TARGET_OPTIONS}
ALS_OPTIONS = {
    "columns": "--columns",
    "implicit=False": "INPUTS without --implicit",
    "implicit=True": "--implicit",
    "max_iter": "--max-iter",
    "reg": "--reg",
}
MDS_OPTIONS = {
    "max_iter": "--max-iter",
    "metric": "--metric",
    "n_components": "--components",
    "weights": "--weights",
}
RECORD_OPTIONS = {"dtype": "--dtype", "format": "--format", "record_bytes": "--record-bytes"}
DISTRIBUTE_OPTIONS = {"block_bytes": "--block", "strategy": "--strategy"}
#: Options of tables, which replace parameter names only before a value, because some are words of plain text, too.
TABLE_OPTIONS = {
    name: f"--{name}"
    for name in ("columns", "ignore", "types", "missing", "header", "delimiter", "decimal", "thousands")
}
OPTIONS = {
    "als": ALS_OPTIONS,
    **dict.fromkeys(("bfs", "components", "diameter", "pagerank"), GRAPH_OPTIONS),
    "distribute": DISTRIBUTE_OPTIONS,
    "kmeans": RECORD_OPTIONS,
    "layout": GRAPH_OPTIONS,
    "logistic": LOGISTIC_OPTIONS,
    "mds": MDS_OPTIONS,
    "pca": PCA_OPTIONS,
    "predict": {"method": "--method"},
    "ridge": TARGET_OPTIONS,
    "split": RECORD_OPTIONS,
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
    options = OPTIONS.get(command, {})
    failed = FAILED_AS.get(command, FAILED)

    def tell(message: str, code: int) -> int:
        click.echo(f"ripieno: {_named(message, options)}", err=True)
        return code

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        # The source location of a warning does not help a user of the command.
        if exit_message.is_first_here():
            click.echo(f"ripieno: {_named(str(message), options)}", err=True)

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
        return tell("interrupted", INTERRUPTED)
    except InputError as error:
        # All ranks of a host find the same error in arguments and files, so only the first prints it.
        return WRONG_INPUT if exit_message.said_by_first() else tell(str(error), WRONG_INPUT)
    except RipienoError as error:
        return failed if exit_message.said_by(error) else tell(str(error), failed)
    except OSError as error:
        return tell(results.explain(error), failed)
    except MemoryError as error:
        return tell(f"out of memory: {error}", failed)
    finally:
        signal.signal(signal.SIGTERM, before)


def _named(message: str, options: Mapping[str, str]) -> str:
    """Return a message with option names in place of parameter names. Paths stay unchanged."""
    known = [*options, *(f"{name}(?==)" for name in TABLE_OPTIONS if name not in options)]
    return re.sub(
        rf"(?<![\w/.'\"-])({'|'.join(known)})(?![\w/.'\"-])(=?)",
        lambda match: {**TABLE_OPTIONS, **options}[match[1]] + (" " if match[2] else ""),
        message,
    )


def _terminate(number: int, frame: FrameType | None) -> None:
    # Exit by an exception, so that cleanup ends workers and removes unfinished files.
    sys.exit(SIGNAL_BASE + number)
