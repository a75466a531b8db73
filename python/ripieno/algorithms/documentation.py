"""Documentation of estimators: text that several estimators share, and sections made from declarations."""

from __future__ import annotations

import inspect
import re

from ripieno.algorithms.column_choice import ColumnChoice, TargetChoice
from ripieno.algorithms.parameters import arguments_of

#: Entries of fitted attributes, by name. An estimator that annotates one of them need not document it.
ATTRIBUTES = {
    "vertices_": """\
vertices_ : ndarray of shape (n,)
    The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
""",
    "n_features_in_": """\
n_features_in_ : int
    Number of columns of the input.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the columns, if the input had them: frames, CSV with a header, and Parquet. Later input must have the same
    names.
""",
    "first_column_": """\
first_column_ : int or None
    Index of the first column in libsvm text, 0 or 1; None for other input.
""",
    "solver_": """\
solver_ : str
    Solver used.
""",
    "residual_": """\
residual_ : float
    Largest residual norm of the eigenvectors.
""",
    "resumed_from_": """\
resumed_from_ : int or None
    Number of completed steps (iterations, epochs, batches or rounds) at which the fit resumed, after a worker failure
    or from `checkpoint`; None if it did not resume.
""",
    "report_": """\
report_ : PlainReport
    Time breakdown of each rank; see docs/dashboard.md.
""",
}

#: Arguments of a fit: for the choice of columns, and for a target.
_COLUMN_CHOICE = """\
**choice : ColumnChoice
    Columns of frames and of tables in files, by name: `columns` to read, by default all; `ignore`, the columns to leave
    out; `id`, the names of the rows or edges, which are not values.
"""
_TARGET_CHOICE = """\
**choice : TargetChoice
    Columns of frames and of tables in files, by name: `columns` to read, by default all; `ignore`, the columns to leave
    out; `id`, the names of the rows, which are not values; `target`, the column to predict.
"""
#: Further arguments of every fit.
_JOINT_CALL = """\
comm : Communicator, optional
    Ranks that make this call together, instead of newly started workers. All ranks get the model.
rows : {"own", "shared"}, optional
    With `comm`: "own" if each rank passes its own part of the data, concatenated in rank order; "shared" if all ranks
    pass the same data. Default: ranks compare their data and raise an error if these differ.
"""
_RESULT = """
Returns
-------
self
    The estimator itself.

Raises
------
InputError
    Invalid input or parameter. InputError is a ValueError; its message names the problem.
CheckpointError
    The checkpoint belongs to another fit, is in use, or cannot be written.
CollectiveMismatch
    The ranks of `comm` make different calls, have different parameters, or pass different data without `rows`.
RankFailed
    A worker died.
"""


def document(estimator: type) -> None:
    """Complete the documentation of an estimator: the section of parameters, and attributes of `ATTRIBUTES`."""
    if not vars(estimator).get("__doc__"):
        return
    doc = inspect.cleandoc(estimator.__doc__ or "")
    entries = "".join(each.entry for each in arguments_of(estimator).values())
    summary, *sections = re.split(r"^(?=\w+\n-+$)", doc, flags=re.MULTILINE)
    annotated = {name for base in estimator.__mro__ for name in inspect.get_annotations(base)}
    shared = [text for name, text in ATTRIBUTES.items() if name in annotated and f"\n{name} :" not in doc]
    for at, section in enumerate(sections):
        if section.startswith("Attributes\n"):
            sections[at] = "\n".join([section.rstrip(), *"".join(shared).splitlines()]) + "\n\n"
    estimator.__doc__ = "".join([summary, f"Parameters\n----------\n{entries}\n", *sections])


def fit_documentation(doc: str, choice: type[ColumnChoice] | None) -> str:
    """Add the text that all fits share to the documentation of a fit, after its parameters.

    `choice` is the type of the arguments that choose columns, if the fit has any.
    """
    own, warns, warnings = doc.partition("\nWarns\n")
    columns = "" if choice is None else _TARGET_CHOICE if choice is TargetChoice else _COLUMN_CHOICE
    return f"{own.rstrip()}\n{_JOINT_CALL}{columns}{_RESULT}{warns}{warnings}"
