"""The command `ripieno demo`: extract features and cluster them, on photographs of installed packages."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import click

from ripieno.cli.number_types import Count
from ripieno.cli.options import counted_workers, overwrite_option, quiet_option, trace_option
from ripieno.errors import InputError

DEMO_STRIDE = 16


@click.command("demo")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default=Path("result"), show_default=True, help="Folder to write."
)
@click.option(
    "-k",
    "--clusters",
    type=Count(),
    metavar="COUNT",
    default=64,
    show_default=True,
    help="Number of clusters.",
)
@counted_workers("Worker processes on this machine.", default=2, show_default=True)
@trace_option
@overwrite_option
@quiet_option
def demo_command(out: Path, clusters: int, workers: int, trace: Path | None, overwrite: bool, quiet: bool) -> None:
    """Cluster the patches of the photographs that come with scikit-learn and scikit-image."""
    from ripieno.cli import cli
    from ripieno.cli.fits import replaceable
    from ripieno.features import HogOptions, demo_images
    from ripieno.files.results import check_new_folder, check_results
    from ripieno.launch.limits import check_memory

    check_new_folder(out, replaceable("KMeans") if overwrite else ())
    check_results({"--trace": trace}, overwrite=overwrite)
    check_memory(workers)
    options = HogOptions(stride=DEMO_STRIDE)
    patches = sum(options.patch_count(picture.height, picture.width) for picture in demo_images())
    if clusters > patches:
        raise InputError(f"--clusters {clusters}: expected at most {patches}, the number of patches of the photographs")

    with tempfile.TemporaryDirectory() as folder:
        vectors = str(Path(folder) / "vectors.npy")
        features = ["features", "--demo", "--stride", str(DEMO_STRIDE), "--out", vectors]
        kmeans = ["kmeans", vectors, "--clusters", str(clusters), "--workers", str(workers), "--out", str(out)]
        if trace is not None:
            kmeans += ["--trace", str(trace)]
        kmeans += ["--overwrite"] * overwrite
        for command in (features, kmeans):
            if not quiet:
                click.secho(f"$ ripieno {shlex.join(command)}", fg="cyan", err=True)
            cli.main([*command, *["--quiet"] * quiet], prog_name="ripieno", standalone_mode=False)
