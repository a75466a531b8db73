"""The command `ripieno kmeans`: cluster the vectors of files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ripieno._version import __version__
from ripieno.algorithms.kmeans.parameters import KMeansParameters
from ripieno.algorithms.parameters import options_of
from ripieno.cli.command_line import command_line
from ripieno.cli.fits import FitRun, fit_command, listed_parameters, of_report
from ripieno.cli.number_types import Count
from ripieno.cli.options import LocalPath, read_numbers
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.algorithms import KMeans
    from ripieno.algorithms.kmeans.fit_report import KMeansReport
    from ripieno.algorithms.reported import PlainReport
    from ripieno.features.index import Patches
    from ripieno.input import TableFiles


@fit_command("kmeans", KMeansParameters, estimator="KMeans", title="K-means", required=("n_clusters",))
@click.option(
    "--start",
    type=LocalPath(),
    metavar="FILE",
    help="Start from these centroids, such as the centroids.npy of an earlier result, instead of --init.",
)
@click.option(
    "--record-bytes",
    type=Count(),
    metavar="COUNT",
    help="INPUTS are raw vectors of COUNT bytes each, without headers.",
)
@click.option("--dtype", metavar="TYPE", help="Type of the values of raw vectors, such as float32. Default: uint8.")
@click.option("--weights", type=LocalPath(), help="Weights of the rows: a .npy file, or text with one per line.")
@click.option(
    "--patches",
    type=LocalPath(),
    help="Patches of the rows, for the report: a table with columns picture, row, col. Default: the "
    ".patches.csv next to each input.",
)
@click.option("--photos", type=LocalPath(), help="Folder of the pictures with the patches.")
def kmeans_command(
    run: FitRun,
    start: Path | None,
    record_bytes: int | None,
    dtype: str | None,
    weights: Path | None,
    patches: Path | None,
    photos: Path | None,
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
    from ripieno.algorithms import KMeans
    from ripieno.cli.progress import KMeansProgress

    if dtype is not None and record_bytes is None:
        raise InputError(f"--dtype {dtype} is for raw vectors: expected --record-bytes, too")
    rows, files, found = _open(run.inputs, run.tables, record_bytes, dtype, patches, photos)
    given = {} if start is None else {"init": read_numbers(start, "centroids")}
    with run.fitting(KMeans, KMeansProgress(run.console, quiet=run.quiet), **given) as model:
        model.fit(rows, sample_weight=None if weights is None else read_numbers(weights, "weights"))
    run.write_folder(model._saved_arrays(), _description(model, files))
    is_near = options_of(model).assign == "near"
    near = f" (some {100 * model.inertia_gap_:.2g} % more than with exact assignment)" if is_near else ""
    run.end(
        lambda part: _write_report(part, model, files, found),
        f"{len(model.labels_):,} rows in {model.n_clusters:,} clusters after {model.n_iter_} iterations, "
        f"inertia {model.inertia_:.8g}{near}, {model.report_.total_s:.3g} s",
    )


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


def _parameters(model: KMeans) -> dict[str, Any]:
    return listed_parameters(model) | ({} if isinstance(model.init, str) else {"init": "centroids of a file"})


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
        **model._saved_entries(),
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
