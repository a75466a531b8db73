"""Spark ML parameters of `KMeans` and its model, under both names: ``maxIter`` and ``max_iter``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

from numpy.typing import ArrayLike
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasPredictionCol, HasWeightCol

from ripieno._types import ThreadModel
from ripieno.algorithms.domains import Integer, Number, OneOf, Seed
from ripieno.algorithms.kmeans.parameters import INITS, KMeansParameters
from ripieno.algorithms.parameters import Parameter, names_of, parameters_of
from ripieno.launch.limits import SLOTS_S

Owner = TypeVar("Owner", bound=type)


def snake_case(name: str) -> str:
    """Convert Spark's name of a parameter to snake case: ``maxIter`` to ``max_iter``."""
    return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)


def set_given(owner: Params, given: Mapping[str, Any]) -> None:
    """Set the parameters named by a caller, in snake_case or as in Spark; None sets no value."""
    names = {each: param.name for param in owner.params for each in (snake_case(param.name), param.name)}
    unknown = given.keys() - names.keys()
    if unknown:
        raise TypeError(f"{type(owner).__name__}() got an unexpected keyword argument {min(unknown)!r}")
    values = {names[name]: value for name, value in given.items()}
    if len(values) < len(given):
        raise TypeError(f"{type(owner).__name__}: a parameter is given by both of its names: {', '.join(given)}")
    owner._set(**{name: value for name, value in values.items() if value is not None})


def with_accessors(*settable: str) -> Callable[[Owner], Owner]:
    """Add Spark's ``getK`` for each parameter of a class, and ``setK`` for the named ones; by default for all."""

    def added(owner: Owner) -> Owner:
        for name in dir(owner):
            if isinstance(getattr(owner, name), Param):
                _add_accessors(owner, name, getattr(owner, name).doc, not settable or name in settable)
        return owner

    return added


def _add_accessors(owner: type, name: str, doc: str, is_settable: bool) -> None:
    def get(self: Params) -> Any:
        return self.getOrDefault(name)

    def set_to(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    for prefix, method in (("get", get), ("set", set_to)) if is_settable else (("get", get),):
        method.__name__ = prefix + name[0].upper() + name[1:]
        method.__qualname__ = f"{owner.__qualname__}.{method.__name__}"
        method.__doc__ = f"{'The value' if prefix == 'get' else 'Set the value'} of `{name}`: {doc}"
        setattr(owner, method.__name__, method)


class KMeansArguments(TypedDict, total=False):
    """Arguments of the estimator and of its method `setParams`."""

    k: int
    max_iter: int
    tol: float
    seed: int
    init_mode: str
    thread_model: ThreadModel
    assign: str
    bounds: str
    initial_centers: ArrayLike
    features_col: str
    prediction_col: str
    weight_col: str | None
    workers: int | None
    threads: int | None
    slots_timeout_s: float


#: Names and defaults that differ in `pyspark.ml.clustering.KMeans`.
_NAMES = {"n_clusters": "k", "random_state": "seed", "init": "init_mode"}
_DEFAULTS = {"n_clusters": 2, "max_iter": 20, "random_state": 0}
#: A fit has one start, and the model receives the centers of rank 0.
_OMITTED = ("n_init", "centroids")
_CONVERTERS = {
    Integer: TypeConverters.toInt,
    Number: TypeConverters.toFloat,
    OneOf: TypeConverters.toString,
    Seed: TypeConverters.toInt,
}


def _declared() -> dict[str, Parameter]:
    """Return the declarations of the parameters of `ripieno.KMeans` that Spark's estimator has, by Spark's name."""
    declared = {}
    for name in names_of(KMeansParameters, "model"):
        each = parameters_of(KMeansParameters)[name]
        if each.has_option and name not in _OMITTED:
            domain = OneOf(*INITS) if name == "init" else each.domain
            own = _NAMES.get(name, name)
            camel = re.sub("_([a-z])", lambda match: match[1].upper(), own)
            declared[camel] = replace(each, name=own, domain=domain, default=_DEFAULTS.get(name, each.default))
    return declared


DECLARED = _declared()


class KMeansParams(HasFeaturesCol, HasPredictionCol, HasWeightCol):
    """Parameters shared by estimator and model."""

    workers: Param[int] = Param(
        Params._dummy(), "workers", "ranks, a slot of the executors each; unset: all slots.", TypeConverters.toInt
    )
    threads: Param[int] = Param(
        Params._dummy(), "threads", "threads of each rank; unset: spark.task.cpus.", TypeConverters.toInt
    )
    slotsTimeoutS: Param[float] = Param(
        Params._dummy(), "slotsTimeoutS", "how long a fit waits for free slots, in seconds.", TypeConverters.toFloat
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(slotsTimeoutS=SLOTS_S, **{name: each.default for name, each in DECLARED.items()})


for _name, _each in DECLARED.items():
    setattr(KMeansParams, _name, Param(Params._dummy(), _name, _each.summary, _CONVERTERS[type(_each.domain)]))
