"""Provide the engines that run ranks, by name. Each module is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ripieno.errors import EngineError

if TYPE_CHECKING:
    from ripieno.launch.engine.contract import Engine

# Class of each engine, and the package that it requires, if any; the extra with the engine's name installs the package.
_CLASSES = {
    "spark": ("ripieno.launch.engines.spark.engine:SparkEngine", "pyspark"),
    "dask": ("ripieno.launch.engines.dask.engine:DaskEngine", "distributed"),
    "ray": ("ripieno.launch.engines.ray.engine:RayEngine", "ray"),
    "slurm": ("ripieno.launch.engines.slurm:SlurmEngine", None),
    "mpirun": ("ripieno.launch.engines.mpirun:MpirunEngine", None),
}

ENGINES = ("local", *_CLASSES)


def engine_of(name: str, options: Mapping[str, Any]) -> tuple[Engine, dict[str, Any]]:
    """Return the engine, created with its own options, and the remaining options.

    Raises
    ------
    EngineError
        If its package is not installed, or the engine is unreachable.
    """
    check_installed(name)
    module, kind = _CLASSES[name][0].split(":")
    engine = getattr(import_module(module), kind)
    own = {key: value for key, value in options.items() if key in engine.OPTIONS}
    return engine(**own), {key: value for key, value in options.items() if key not in own}


def check_installed(name: str) -> None:
    """Raise `EngineError` if the package that an engine requires is missing."""
    _, package = _CLASSES[name]
    if package is not None and find_spec(package) is None:
        raise EngineError(f"engine={name!r} needs {package}, which is not installed: pip install 'ripieno[{name}]'")
