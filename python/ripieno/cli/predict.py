"""The command `ripieno predict`: apply the result of another command to new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from numpy.typing import NDArray

from ripieno import algorithms
from ripieno.algorithms.parameters import WorkerParameters
from ripieno.cli.fits import fit_workers_option
from ripieno.cli.options import (
    PathOrUrl,
    dashboard_option,
    engine_options,
    overwrite_option,
    quiet_option,
    threads_option,
)
from ripieno.cli.parameter_options import parameter_options
from ripieno.cli.table_options import table_options
from ripieno.errors import InputError
from ripieno.files.results import ResultPath, check_results
from ripieno.files.tables import ARRAY_FORMATS, TABLE_FORMATS, check_format, write_array, write_table
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms.result_folder import SavedEstimator
    from ripieno.input import TableFiles


_OF_CLUSTERS = ("predict", "transform")
_OF_CLASSES = ("predict", "predict_proba", "predict_log_proba", "decision_function")
#: Estimator and methods by the command, or estimator, that wrote the result; the first method is the default.
APPLIED = {
    "als": ("ALS", ("predict",)),
    "kmeans": ("KMeans", _OF_CLUSTERS),
    "logistic": ("LogisticRegression", _OF_CLASSES),
    "mds": ("MDS", ("interpolate",)),
    "pca": ("PCA", ("transform",)),
    "ridge": ("Ridge", ("predict",)),
    "LinearRegression": ("LinearRegression", ("predict",)),
    "MiniBatchKMeans": ("MiniBatchKMeans", _OF_CLUSTERS),
    "SparseSGD": ("SparseSGD", _OF_CLASSES),
}


@click.command("predict")
@click.argument("result", type=PathOrUrl())
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "-o", "--out", type=PathOrUrl(*ARRAY_FORMATS), required=True, help=f"File to write: {', '.join(ARRAY_FORMATS)}."
)
@click.option(
    "--method",
    metavar="METHOD",
    help="Output: predict, the default for models with predictions; for kmeans and pca transform, "
    "the distances to all centroids or the values along the axes; for classifiers predict_proba, "
    "predict_log_proba or decision_function; for mds interpolate, the positions.",
)
@table_options
@fit_workers_option
@engine_options
@threads_option
@parameter_options(WorkerParameters, "on_failure")
@overwrite_option
@dashboard_option
@quiet_option
def predict_command(
    result: ResultPath,
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    method: str | None,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    parameters: dict[str, Any],
    overwrite: bool,
    quiet: bool,
) -> None:
    """Apply RESULT, a folder that als, kmeans, logistic, mds, pca, ridge or `model.save` wrote, to the rows of INPUTS.

    INPUTS are files, globs, folders or URLs of the same columns, as the command that wrote RESULT takes them; a column
    with the target is optional. For als they are tables of users and items, for mds dissimilarities to the points.
    Every worker reads its own share, except for als and for sparse rows. OUT gets one entry per row, in the same order:
    the cluster, the class, or the value. The suffix of its name selects the format. A table has a column named after
    the method, or after the method and each class or number; with --id, also that column.

    \b
    Example:
      ripieno kmeans vectors.npy --clusters 1000 --out result/
      ripieno predict result/ more.npy --out clusters.npy
    """
    from rich.console import Console

    from ripieno.algorithms.column_choice import fitted_columns
    from ripieno.algorithms.result_folder import ResultFolder
    from ripieno.input import TableFiles
    from ripieno.input.matrix import open_source

    check_results({"--out": out}, inputs, overwrite=overwrite)
    algorithm = ResultFolder.read(result).algorithm
    if algorithm not in APPLIED:
        raise InputError(f"{result} holds a result of {algorithm!r}, which has no predictions")
    estimator, methods = APPLIED[algorithm]
    chosen = method or methods[0]
    if chosen not in methods:
        raise InputError(f"--method {chosen!r}: of {algorithm} expected one of {', '.join(methods)}")
    model = getattr(algorithms, estimator).load(result)
    model.set_params(workers=workers, threads=threads, engine=engine, **parameters)
    if not hasattr(model, chosen):
        raise InputError(f"--method {chosen!r}: {algorithm} has probabilities only with loss='log_loss'")
    ids = None
    if isinstance(tables, TableFiles) and tables.id is not None:
        check_format(out, [end for end in TABLE_FORMATS if end != ".npz"])
        # The target is not used, so its type is not checked.
        rows = fitted_columns(model, tables)
        ids = open_source(rows, getattr(model, "_target_name", None), ()).ids().combine_chunks()
    found = getattr(model, chosen)(tables)
    names = _column_names(model, chosen, found)
    if ids is None:
        write_array(found, out, names)
    else:
        assert isinstance(tables, TableFiles)
        columns = found.T if found.ndim > 1 else [found]
        write_table({str(tables.id): ids} | dict(zip(names, columns, strict=True)), out)
    if not quiet:
        words = " × ".join(f"{length:,}" for length in found.shape)
        values = "strings" if found.dtype.kind in "OSU" else f"values of {found.dtype}"
        Console(stderr=True).print(f"{chosen} of {algorithm}: {words} {values}", highlight=False)
    click.echo(str(out))


def _column_names(model: SavedEstimator, method: str, predicted: NDArray[Any]) -> list[str]:
    if predicted.ndim == 1:
        return [method]
    classes = getattr(model, "classes_", ())
    return [
        f"{method}_{name}" for name in (classes if len(classes) == predicted.shape[1] else range(predicted.shape[1]))
    ]
