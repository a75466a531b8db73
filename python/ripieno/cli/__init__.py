"""The command `ripieno`. Exit codes: 0 success, 1 failure while running, 2 wrong input or usage, 130 interrupted.

`ripieno grep` exits with 0 if lines match, 1 if none match, and 2 after any error.
"""

from __future__ import annotations

import atexit
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from ripieno.cli.command_line import COMMAND_LINE
from ripieno.errors import InputError, RipienoError
from ripieno.files import results
from ripieno.launch.process.interruption import exit_on_sigterm
from ripieno.launch.process.processes import exit_at_once, fill_standard_descriptors
from ripieno.launch.script import exit_message

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
#: An argument in a message: a name with a number, a string, a list of one string, or no value. It is not a folder of a
#: path.
_ARGUMENT = re.compile(
    r"(?<![\w.=/-])(?P<name>[A-Za-z]\w*)="
    r"(?:\['(?P<listed>[^']*)'\]|'(?P<quoted>[^']*)'|(?P<plain>[-+\w.]*\w))?(?![\w/\[])"
)
#: Exit code of a failed run, for commands with the exit code 1 if nothing was found.
FAILED_AS = {"grep": 2}

#: Module and function of each command, and its summary. Commands are imported on use: some import large libraries.
COMMANDS = {
    "aggregate": ("aggregate:aggregate_command", "Sum, average and count the rows of tables by key."),
    "als": ("als:als_command", "Factorize ratings of items by users."),
    "bench": ("bench:bench_command", "Compare collectives with the lower bound and with other libraries."),
    "bfs": ("vertices:bfs_command", "Count the edges between a vertex and all others."),
    "clustering": ("vertices:clustering_command", "Compute local clustering coefficients of a graph."),
    "communities": ("vertices:communities_command", "Find communities of a graph by label propagation."),
    "components": ("vertices:components_command", "Find the connected components of a graph."),
    "demo": ("demo:demo_command", "Cluster patches of photographs from installed packages."),
    "diameter": ("vertices:diameter_command", "Estimate the effective diameter of a graph."),
    "distribute": (
        "distribute:distribute_command",
        "Copy files from one host to many; hosts also fetch from each other.",
    ),
    "doctor": ("run:doctor_command", "Check whether workers can start, connect and communicate."),
    "explain": ("explain:explain_command", "Show which algorithms would run, and their predicted costs."),
    "features": ("features:features_command", "Compute feature vectors of patches of pictures."),
    "grep": ("grep:grep_command", "Find lines of files."),
    "kmeans": ("kmeans:kmeans_command", "Cluster the vectors of files."),
    "kubernetes": (
        "kubernetes:kubernetes_command",
        "Write the manifest that runs a script in the pods of a Kubernetes cluster.",
    ),
    "lab": ("lab:lab_command", "Emulate a cluster on this machine."),
    "layout": ("layout:layout_command", "Compute a force-directed layout of a graph."),
    "pagerank": ("pagerank:pagerank_command", "Rank the vertices of a graph."),
    "logistic": ("logistic:logistic_command", "Fit a linear classifier to the rows of files."),
    "packets": ("packets:packets_command", "Measure throughput against packet size."),
    "mds": ("mds:mds_command", "Embed points so that distances match a matrix of dissimilarities."),
    "pca": ("pca:pca_command", "Compute the principal components of the vectors of files."),
    "predict": ("predict:predict_command", "Apply a fitted model to new rows."),
    "report": ("report:report_command", "Compare results of several runs."),
    "ridge": ("ridge:ridge_command", "Fit a linear regression of a column of files."),
    "reproduce": (
        "reproduce:reproduce_command",
        "Simulate figures of papers, and compare them with the printed values.",
    ),
    "run": ("run:run_command", "Run a script as several ranks on this machine."),
    "shortest-paths": ("vertices:shortest_paths_command", "Find weighted shortest paths from a vertex."),
    "simulate": ("simulate:simulate_command", "Simulate a collective on a modeled cluster."),
    "spectral-clustering": ("vertices:spectral_clustering_command", "Cluster the vertices of a graph."),
    "split": ("split:split_command", "Divide files into even partitions, or show their assignment to workers."),
    "topology": ("topology:topology_command", "Find which hosts share a rack."),
    "trace": ("trace:trace_command", "Write a trace of the communication of ranks."),
    "tune": ("tune:tune_command", "Measure costs of links, memory and cores."),
    "wordcount": ("wordcount:wordcount_command", "Count the words of files."),
}


class LazyGroup(click.Group):
    """A command group that imports its commands on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and summaries of all commands, without an import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the options and commands that begin with `incomplete`, without an import."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name][1]) for name in names), *options]

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
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"ripieno.cli.{module}"), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ripieno", message="%(prog)s %(version)s")
def cli() -> None:
    """Iterative analytics by many workers: cluster vectors, fit models, rank vertices, run your own programs."""


def run() -> NoReturn:
    """Run the command of this process and end the process, also at once after a signal.

    Exit handlers run, but the process does not delete its objects: after large imports this would take up to 0.3 s.
    """
    status: object
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    exit_at_once(SystemExit(status))


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed as one sentence."""
    command = next(iter(sys.argv[1:] if args is None else args), "")
    failed = FAILED_AS.get(command, FAILED)

    def fail(message: str, code: int) -> int:
        click.echo(f"ripieno: {message}", err=True)
        return code

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        # The source location of a warning does not help a user of the command.
        if exit_message.is_first_on_host():
            click.echo(f"ripieno: {message}", err=True)

    fill_standard_descriptors()
    # An inherited SIG_IGN would hide the exit status of child processes.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with exit_on_sigterm(), warnings.catch_warnings():
            warnings.showwarning = warn
            code = cli.main(args, prog_name="ripieno", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if not exit_message.is_reported_by_first():
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except InputError as error:
        # All ranks of a host find the same error in arguments and files, so only the first prints it.
        is_reported = exit_message.is_reported_by_first()
        return WRONG_INPUT if is_reported else fail(_with_options(str(error), command), WRONG_INPUT)
    except RipienoError as error:
        return failed if exit_message.is_reported_by_another(error) else fail(str(error), failed)
    except OSError as error:
        return fail(results.explain(error), failed)
    except MemoryError as error:
        return fail(f"out of memory: {error}", failed)


def _with_options(message: str, command: str) -> str:
    """Return a message with options instead of arguments of Python, such as `--ignore id` for ``ignore=['id']``."""
    found = cli.get_command(click.Context(cli), command)
    parameters = [] if found is None else found.params
    options = {str(each.name): each for each in parameters if isinstance(each, click.Option)}
    # In commands, an option with a column name replaces the argument `y` of estimators.
    options = {"y": options["target"], **options} if "target" in options else options

    def option(match: re.Match[str]) -> str:
        found, values = options.get(match["name"]), match.group("listed", "quoted", "plain")
        if found is None:
            return match[0]
        value = next((each or "''" for each in values if each is not None), "")
        is_off = found.is_flag and value == "False"
        words = (found.secondary_opts if is_off else found.opts) or found.opts
        name = next((word for word in words if word.startswith("--")), words[0])
        return name if found.is_flag else f"{name} {value}".rstrip()

    return _ARGUMENT.sub(option, message)
