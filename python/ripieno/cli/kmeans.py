"""The command `ripieno kmeans`: cluster the vectors of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from ripieno._types import OnFailure, ThreadModel
from ripieno._version import __version__
from ripieno.algorithms.methods import KMEANS_ASSIGNS, KMEANS_BOUNDS, KMEANS_CENTROIDS, KMEANS_INITS
from ripieno.cli.command_line import command_line
from ripieno.cli.fits import (
    add_report,
    check_folder,
    checkpoint_options,
    clusters_option,
    fit_options,
    listed_parameters,
    max_iter_option,
    method_option,
    of_report,
    seed_option,
    tol_option,
)
from ripieno.cli.options import LocalPath, read_numbers
from ripieno.errors import InputError
from ripieno.files.results import ResultPath, new_folder, save_array
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import KMeans
    from ripieno.algorithms.kmeans.fit_report import KMeansReport
    from ripieno.algorithms.reported import PlainReport
    from ripieno.features.index import Patches
    from ripieno.input import TableFiles


ARRAYS = ("centroids", "labels")
LISTED_PARAMETERS = (
    *("n_clusters", "init", "n_init", "max_iter", "tol", "random_state"),
    *("workers", "threads", "thread_model", "assign", "bounds", "centroids", "engine"),
)


@click.command("kmeans")
@clusters_option
@method_option("--init", KMEANS_INITS, "Choice of the first centroids")
@click.option(
    "--start",
    type=LocalPath(),
    metavar="FILE",
    help="Start from these centroids, such as the centroids.npy of an earlier result, instead of --init.",
)
@click.option(
    "--n-init",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Number of runs with different first centroids; the best result is kept. Default: 10 for "
    "random and exact assignment, else 1.",
)
@max_iter_option(300)
@tol_option(1e-4, "Stop when the squared shift of the centroids is at most this times the mean variance of a column.")
@checkpoint_options
@seed_option
@click.option(
    "--record-bytes",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="INPUTS are raw vectors of COUNT bytes each, without headers.",
)
@click.option("--dtype", metavar="TYPE", help="Type of the values of raw vectors, such as float32. Default: uint8.")
@click.option("--weights", type=LocalPath(), help="Weights of the rows: a .npy file, or text with one per line.")
@click.option(
    "--patches",
    type=LocalPath(),
    help="Patches of the rows, for the report: a table with columns picture, row, col. Default: the "
    ".patches.csv beside each input.",
)
@click.option("--photos", type=LocalPath(), help="Folder of the pictures with the patches.")
@method_option("--thread-model", get_args(ThreadModel), "Model of the threads of a worker")
@method_option("--assign", KMEANS_ASSIGNS, "Compare rows with all centroids, or only with centroids of near groups")
@method_option(
    "--bounds", KMEANS_BOUNDS, "Skip distances that bounds of the previous iteration rule out; results are the same"
)
@method_option("--centroids", KMEANS_CENTROIDS, "Store all centroids on each worker, or a share of them")
@fit_options
def kmeans_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    clusters: int,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    thread_model: ThreadModel,
    assign: Literal["exact", "near"],
    bounds: Literal["auto", "none"],
    centroids: Literal["auto", "whole", "divided"],
    init: str,
    start: Path | None,
    n_init: int | None,
    max_iter: int,
    tol: float,
    checkpoint: str | None,
    every: int | None,
    seed: int,
    record_bytes: int | None,
    dtype: str | None,
    weights: Path | None,
    patches: Path | None,
    photos: Path | None,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Cluster the vectors of INPUTS and write centroids, labels and a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv, .parquet, and .txt with lines of "picture row col f1 …
    fn"; with --record-bytes any files of raw vectors. Every worker reads its own share. Sparse rows, from
    scipy.sparse.save_npz or libsvm text named .libsvm, .svmlight or .svm, are read by this command and distributed to
    the workers. A partition file, partitions.json of `ripieno split`, may be the only input: every worker reads the
    partitions that are assigned to it. The output folder holds centroids.npy, labels.npy (in the order of the rows),
    model.json and report.html. It appears as a whole or not at all, also at a URL.

    \b
    Example:
      ripieno features photos/ --out vectors.npy
      ripieno kmeans vectors.npy --clusters 1000 --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import KMeans
    from ripieno.cli.progress import KMeansProgress

    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    if dtype is not None and record_bytes is None:
        raise InputError(f"--dtype {dtype} is for raw vectors: expected --record-bytes, too")
    rows, files, found = _open(inputs, tables, record_bytes, dtype, patches, photos)
    progress = KMeansProgress(console, quiet=quiet)
    model = KMeans(
        clusters,
        init=init if start is None else read_numbers(start, "centroids"),
        n_init=n_init or "auto",
        max_iter=max_iter,
        tol=tol,
        random_state=seed,
        checkpoint=checkpoint,
        every=every,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        thread_model=thread_model,
        assign=assign,
        bounds=bounds,
        centroids=centroids,
        on_iteration=progress.on_event,
    )
    with progress, traced(trace):
        model.fit(rows, sample_weight=None if weights is None else read_numbers(weights, "weights"))
    with new_folder(out, names) as folder:
        _write(folder, model, files)
    written = add_report(out, lambda part: _write_report(part, model, files, found))
    loss = f" (some {100 * model.inertia_gap_:.2g} % more than with exact assignment)" if assign == "near" else ""
    console.print(
        f"{len(model.labels_):,} rows in {clusters:,} clusters after {model.n_iter_} iterations, "
        f"inertia {model.inertia_:.8g}{loss}, {model.report_.total_s:.3g} s",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(written)


def _open(
    inputs: Sequence[str],
    tables: list[str] | TableFiles,
    record_bytes: int | None,
    dtype: str | None,
    patches: Path | None,
    photos: Path | None,
) -> tuple[Any, Sequence[str], Patches | None]:
    """Return the data to fit, the names of its files, and the patches of its rows; sparse rows have no patches."""
    from ripieno.features.index import find_patches
    from ripieno.input.matrix import BinaryFiles, open_source
    from ripieno.input.matrix.sparse_files import SparseFiles
    from ripieno.input.partitions import splits_of

    splits = splits_of(tables) if record_bytes is None else None
    if splits is not None:
        if patches is not None or photos is not None:
            raise InputError("--patches and --photos need files, not partitions")
        return splits, inputs, None
    sparse = SparseFiles.find(inputs) if record_bytes is None and isinstance(tables, list) else None
    if sparse is None:
        dataset = open_source(tables if record_bytes is None else BinaryFiles(inputs, record_bytes, dtype or "uint8"))
        return dataset, dataset.names, find_patches(dataset, patches, photos)
    if patches is not None or photos is not None:
        raise InputError("--patches and --photos need dense rows: the files are sparse")
    return sparse, sparse.names, None


def _write(folder: Path, model: KMeans, names: Sequence[str]) -> None:
    for name, array in model._saved_arrays().items():
        save_array(folder / f"{name}.npy", array)
    (folder / "model.json").write_text(json.dumps(_description(model, names), indent=2) + "\n")


def _parameters(model: KMeans) -> dict[str, Any]:
    parameters = {name: value for name, value in listed_parameters(model).items() if name in LISTED_PARAMETERS}
    if not isinstance(model.init, str):
        parameters["init"] = "centroids of a file"
    return parameters


def _write_report(part: Path, model: KMeans, names: Sequence[str], patches: Patches | None) -> None:
    from ripieno.report import write_report

    write_report(
        part,
        model.report_,
        parameters=_parameters(model),
        inertia=model.inertia_,
        inputs=list(names),
        patches=patches,
        command=command_line(),
    )


def _description(model: KMeans, names: Sequence[str]) -> dict[str, Any]:
    return {
        "algorithm": "kmeans",
        "ripieno_version": __version__,
        "parameters": _parameters(model),
        "inputs": list(names),
        "column_names": list(getattr(model, "feature_names_in_", [])) or None,
        **of_report(model.report_),
        **model._saved_facts(),
        **_times(model.report_),
    }


def _times(report: KMeansReport | PlainReport) -> dict[str, Any]:
    from ripieno.algorithms.kmeans.fit_report import KMeansReport

    if not isinstance(report, KMeansReport):
        return {}
    return {
        "cluster_sizes": report.cluster_sizes.tolist(),
        "seconds": {"load": report.load_s, "seed": report.seed_s, "total": report.total_s},
        "rows_per_s": report.rows_per_s,
        "iterations": [
            {
                "inertia": each.inertia,
                "squared_shift": each.squared_shift,
                "compared": each.compared,
                "recall": each.recall,
                "gap": each.gap,
                "compute_s": each.compute_s,
                "communication_s": each.communication_s,
                "stages": stages,
            }
            for each, stages in zip_longest(report.iterations, report.stages)
        ],
    }
