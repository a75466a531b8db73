"""The commands ``ripieno run`` and ``ripieno doctor``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Literal

import click

from ripieno._checks import THREADS_MAX
from ripieno.cli.number_types import Count
from ripieno.errors import InputError
from ripieno.launch.binding import BINDS, THREAD_AFFINITIES, Binding
from ripieno.launch.engines import ENGINES

# All arguments after the script belong to the script, options included.
_ENDS_WITH_SCRIPT = {"allow_interspersed_args": False}


@click.command("run", context_settings=_ENDS_WITH_SCRIPT)
@click.option(
    "-n",
    "-np",
    "--workers",
    type=Count(),
    metavar="COUNT",
    help="Number of ranks. Default: one per usable core.",
)
@click.option("-m", "module", is_flag=True, help="SCRIPT names a module, as in python -m.")
@click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    metavar="COUNT",
    help="Threads per rank. Default: an even share of the cores.",
)
@click.option(
    "--racks",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file with the hosts of each rack.",
)
@click.option(
    "--replicas",
    type=Count(),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Replicas of each logical rank; one live replica of each is enough. The script calls replicate(COUNT).",
)
@click.option(
    "--bind",
    type=click.Choice(BINDS),
    default="none",
    show_default=True,
    help="Bind each rank to as many cores as it has threads, to a socket, or not at all.",
)
@click.option(
    "--thread-affinity",
    type=click.Choice(THREAD_AFFINITIES),
    default="inherit",
    show_default=True,
    help="Let threads run on all cores of their rank (inherit), or pin each thread to a core.",
)
@click.option(
    "--on-failure",
    type=click.Choice(["raise", "shrink"]),
    default="raise",
    show_default=True,
    help="If a rank dies: end all ranks (raise), or let the script continue with comm.shrink() (shrink).",
)
@click.option(
    "--tls/--no-tls",
    default=None,
    help="Encrypt all TCP connections of ranks, or none. Default: RIPIENO_TLS, else only connections between hosts.",
)
@click.option("--prefix/--no-prefix", default=True, show_default=True, help="Prefix each line of output with its rank.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="File for a trace of the communication of every rank, for ui.perfetto.dev.",
)
@click.option("--dashboard", is_flag=True, help="Serve a page that shows the ranks while they run, and print its link.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file of --trace.")
@click.option("-v", "--verbose", count=True, help="Print log messages of launcher and ranks; twice for more.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_command(
    workers: int | None,
    module: bool,
    threads: int | None,
    racks: str | None,
    replicas: int,
    bind: str,
    thread_affinity: str,
    on_failure: Literal["raise", "shrink"],
    tls: bool | None,
    prefix: bool,
    trace: Path | None,
    dashboard: bool,
    overwrite: bool,
    verbose: int,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT as several ranks on this machine; in it, ripieno.init() returns the communicator.

    Command lines of mpirun work, too: ripieno run -np 4 python -u train.py, or python -m module. The scripts run in the
    Python that runs this command.

    The first rank that fails ends the others, its traceback is printed once, and its exit code is returned.

    \b
    Under another launcher this process already is a rank, and becomes the script:
      srun -n 8 -K ripieno run train.py
      mpirun -n 8 ripieno run train.py
      torchrun --no_python --nproc_per_node 8 ripieno run train.py
    Ranks of one host, or of hosts with one home directory, then need nothing else. Otherwise set for all of them
    RIPIENO_DIRECTORY to a directory that the hosts share, or RIPIENO_TOKEN to a secret and MASTER_ADDR and
    MASTER_PORT to the address of rank 0. All variables are in docs/environment.md.

    Ripieno's own commands run as a module: ripieno run -n 4 -m ripieno pagerank GRAPH.

    --bind and --thread-affinity divide the cores of a machine among its ranks, see docs/threads.md. Under another
    launcher, turn off its own binding: mpirun --bind-to none.

    With --on-failure shrink the job survives ranks that die, if the script continues with the communicator that
    comm.shrink() returns. A line on stderr names each dead rank. The exit code is 0 if the remaining ranks succeed.

    With --replicas a rank may die, for instance by a signal, as long as one of its replicas lives. The exit code is
    then 0, and a line on stderr names the rank that died.
    """
    import ripieno.flight as flight
    from ripieno import log
    from ripieno.files.results import check_results
    from ripieno.files.tables import check_format
    from ripieno.flight.trace import traced
    from ripieno.host import usable_cores
    from ripieno.launch.job.watch import JobWatch
    from ripieno.launch.script import interpreter, launchers, run

    if verbose:
        log.show("INFO" if verbose == 1 else "DEBUG")
    flags: tuple[str, ...] = ()
    if not module and interpreter.is_python(script):
        try:
            flags, module, script, arguments = interpreter.target_of(script, arguments)
        except InputError as error:
            raise click.BadParameter(str(error), param_hint="SCRIPT") from None
    if not module and not os.path.isfile(script):
        raise click.BadParameter(f"{script!r} is not a file", param_hint="SCRIPT")
    program = run.Script(
        script,
        arguments,
        module=module,
        flags=flags,
        prefix=prefix,
        threads=threads,
        racks=racks,
        replicas=replicas,
        binding=Binding(bind, thread_affinity),
        tls=tls,
        on_failure=on_failure,
    )
    if run.under_launcher(asks_for_workers=workers is not None):
        place = launchers.detect(os.environ)
        if place is not None and workers not in (None, place.world_size):
            raise click.BadParameter(
                f"{workers} ranks are requested, but {place.launcher} has started {place.world_size}", param_hint="-n"
            )
        if trace is not None:
            instead = f"set {flight.VARIABLE}=<folder> for all ranks, then: ripieno trace <folder>"
            raise click.UsageError(f"--trace is for ranks that are started here; {instead}")
        if dashboard:
            raise click.UsageError("--dashboard is for ranks that are started here, not by another launcher")
        run.run_here(program)
    if on_failure != "raise" and replicas > 1:
        raise click.UsageError("--on-failure shrink: replicas continue in place of failed ranks")
    if trace is not None:
        check_format(trace, [".json"])
    check_results({"--trace": trace}, overwrite=overwrite)
    workers = workers or usable_cores()
    if workers % replicas:
        raise click.BadParameter(f"{replicas} does not divide the number of ranks, {workers}", param_hint="--replicas")
    try:
        with traced(trace):
            code = run.run(program, workers, JobWatch(dashboard))
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(run.INTERRUPTED)


@click.command("doctor")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="local",
    show_default=True,
    help="Where the workers run.",
)
@click.option("--address", help="Address of Dask's scheduler or of Ray, or a Spark master.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor_command(engine: str, address: str | None, as_json: bool) -> None:
    """Check whether workers can start, connect and communicate here or in an engine, and print how to fix failures.

    In an engine the command starts tasks in all free slots. They check whether versions are equal, whether tasks reach
    each other and this process, and which parties could read the token in transit. The exit code is 0 if all checks
    pass, else 1.
    """
    from ripieno.doctor import engine as engine_doctor
    from ripieno.doctor import machine

    if address is not None and engine not in ("spark", "dask", "ray"):
        raise click.UsageError("--address requires a running engine: --engine spark, dask or ray")
    findings = machine.examine() if engine == "local" else engine_doctor.examine(engine, address)
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        machine.show(findings)
    sys.exit(int(any(finding.outcome == machine.BAD for finding in findings)))
