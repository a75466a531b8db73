"""Parameters that all estimators have. Each is declared here once: its type, default and documentation."""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ripieno._types import OnFailure
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine

_DEFAULTS: dict[str, Any] = {
    "workers": 1,
    "threads": None,
    "engine": "local",
    "on_failure": "raise",
    "checkpoint": None,
    "every": None,
}


class WorkerParameters(TypedDict, total=False):
    """Parameters of every estimator: where a fit runs.

    Parameters
    ----------
    workers : int, default=1
        Number of ranks. A single local rank runs in the calling process.
    threads : int or None, default=None
        Threads per worker. Default: an even share of the machine's cores, or the cores of an engine's slot.
    engine : str, Engine or Job, default="local"
        Where workers run, as in `ripieno.launch`. If this is a running job, the fit uses all of its workers.
    on_failure : {"raise", "shrink", "respawn"}, default="raise"
        Action when a worker dies or stops responding, as in `ripieno.launch`: raise, restart on the survivors, or
        restart with replacements. A restarted fit resumes from its last saved state. A running job uses its own
        setting.
    """

    workers: int
    threads: int | None
    engine: str | Engine | Job
    on_failure: OnFailure


class FitParameters(WorkerParameters, total=False):
    """Parameters of every estimator that iterates: those of `WorkerParameters`, and where a fit is saved.

    Parameters
    ----------
    checkpoint : path, default=None
        Folder for saved state, accessible to rank 0. The running fit saves there, at most once a second. A later fit of
        the same data with the same parameters resumes from it, with any number of workers. The page on failures names
        the parameters that may differ, such as `max_iter`.
    every : int or None, default=None
        Save the fit every this many iterations, as `n_iter_` counts them: to the `checkpoint` folder, and to memory if
        `on_failure` restarts fits. Each save to the folder costs a disk write. None: save to the folder at most once a
        second, and to memory after each iteration.
    """

    checkpoint: str | os.PathLike[str] | None
    every: int | None


def store(estimator: object, declared: type, values: FitParameters | WorkerParameters) -> None:
    """Store the parameters that `declared` has on an estimator, each with its default unless `values` has it."""
    unknown = values.keys() - declared.__annotations__.keys()
    if unknown:
        raise TypeError(f"{type(estimator).__name__}() got an unexpected keyword argument {min(unknown)!r}")
    for name in declared.__annotations__:
        setattr(estimator, name, values.get(name, _DEFAULTS[name]))


def complete(estimator: type, declared: type) -> None:
    """Replace ``**common`` by the parameters of `declared`, in the signature and the documentation of a class."""
    init: Any = estimator.__init__  # type: ignore[misc]  # the function of this class
    signature = inspect.signature(init)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    # A class without a constructor of its own has the completed one of its base class.
    if len(own) < len(signature.parameters):
        common = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=each.__forward_arg__
            )
            for name, each in declared.__annotations__.items()
        ]
        init.__signature__ = signature.replace(parameters=[*own, *common])
    if estimator.__doc__:
        estimator.__doc__ = _COMMON_ENTRY.sub(lambda _: _documentation(declared), inspect.cleandoc(estimator.__doc__))


# The entry of ``**common`` in a section of parameters.
_COMMON_ENTRY = re.compile(r"^\*\*common : .*\n(?:    .*\n)+", re.MULTILINE)


def _documentation(declared: type) -> str:
    """Return the entries of all parameters of `declared`."""
    sections = (WorkerParameters, FitParameters) if declared is FitParameters else (WorkerParameters,)
    return "".join(inspect.cleandoc(each.__doc__ or "").split("-\n", 1)[1] + "\n" for each in sections)
