"""Spark ML parameters of `KMeans` and its model, under both names: ``maxIter`` and ``max_iter``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasMaxIter,
    HasPredictionCol,
    HasSeed,
    HasTol,
    HasWeightCol,
)

from ripieno.launch.limits import SLOTS_S

Owner = TypeVar("Owner", bound=type)


def snake_case(name: str) -> str:
    """Convert Spark's name of a parameter to snake case: ``maxIter`` to ``max_iter``."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def sets_parameters(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method set the parameters that its caller names, in snake_case or as in Spark; None sets no value."""

    @functools.wraps(method)
    def wrapped(self: Params, **given: Any) -> Any:
        keywords = {snake_case(name): value for name, value in given.items()}
        if len(keywords) < len(given):
            raise TypeError(f"{type(self).__name__}: a parameter is given by both of its names: {', '.join(given)}")
        result = method(self, **keywords)
        values = {snake_case(param.name): param.name for param in self.params}
        self._set(**{values[name]: value for name, value in keywords.items() if value is not None})
        return result

    return wrapped


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


class KMeansParams(HasFeaturesCol, HasPredictionCol, HasWeightCol, HasMaxIter, HasTol, HasSeed):
    """Parameters shared by estimator and model; the defaults of `pyspark.ml.clustering.KMeans`, except for `seed`."""

    k: Param[int] = Param(Params._dummy(), "k", "how many clusters, at least 1.", TypeConverters.toInt)
    initMode: Param[str] = Param(
        Params._dummy(),
        "initMode",
        "where to start: 'k-means||', 'k-means++' or 'random' rows.",
        TypeConverters.toString,
    )
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
        self._setDefault(k=2, maxIter=20, tol=1e-4, seed=0, initMode="k-means||", slotsTimeoutS=SLOTS_S)
