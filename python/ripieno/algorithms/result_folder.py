"""Load fitted estimators from the result folders of commands."""

from __future__ import annotations

import json
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ripieno._version import __version__
from ripieno.algorithms.parameters import names_of
from ripieno.errors import InputError
from ripieno.files import disk, sources
from ripieno.files.npy import read_array
from ripieno.files.results import ResultPath, check_new_folder, new_folder, save_array
from ripieno.files.sources import PathLike

Value = TypeVar("Value")
#: Floats without a JSON number, by their strings in model.json.
_NOT_FINITE = {repr(number): number for number in (math.inf, -math.inf, math.nan)}


@dataclass(frozen=True)
class ResultFolder:
    """The result folder of a command.

    Parameters
    ----------
    path
        Path of the folder.
    description
        Contents of model.json.
    """

    path: str
    description: Mapping[str, Any]

    @classmethod
    def read(cls, folder: PathLike) -> ResultFolder:
        """Read model.json.

        Raises
        ------
        InputError
            The file does not exist or is damaged.
        """
        path = os.fspath(folder)
        name = f"{path}/model.json"
        report = _read(name, json.load)
        if not isinstance(report, dict):
            raise InputError(f"{name} is damaged: expected an object")
        parameters = report.get("parameters")
        if isinstance(parameters, dict):
            report["parameters"] = {name: _restored(value) for name, value in parameters.items()}
        return cls(path, report)

    @staticmethod
    def text(description: Mapping[str, Any]) -> str:
        """Return the contents of model.json.

        JSON has no infinity and no NaN, so these are the strings "inf", "-inf" and "nan". A dict with a key other than
        a string is a list of pairs.
        """
        return json.dumps(_as_json(description), indent=2, allow_nan=False) + "\n"

    @property
    def algorithm(self) -> str:
        """Return the name of the command."""
        return self.fact("algorithm", str)

    @property
    def column_count(self) -> int:
        """Return the number of columns that the model was fitted on."""
        return self.fact("column_count", int)

    def fact(self, name: str, kind: type[Value]) -> Value:
        """Return an entry of model.json.

        Raises
        ------
        InputError
            The entry is missing or has another type.
        """
        value = self.description.get(name)
        if kind is float:
            value = _restored(value)
        if not isinstance(value, kind):
            raise InputError(f"{self.path}/model.json: {name!r} is {value!r}, expected a {kind.__name__}")
        return value

    def array(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Read an array of the folder; None in `shape` accepts any length.

        Raises
        ------
        InputError
            The array is missing or damaged, or has another shape.
        """
        path = f"{self.path}/{name}.npy"
        array: NDArray[Any] = _read(path, read_array)
        fits = len(array.shape) == len(shape) and all(
            expected in (None, actual) for actual, expected in zip(array.shape, shape, strict=True)
        )
        if not fits:
            expected = ", ".join("any" if each is None else str(each) for each in shape)
            raise InputError(f"{path} has the shape {array.shape}: expected ({expected}), by model.json")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{path} holds values that are not finite")
        return array


def _read(path: str, read: Callable[[IO[bytes]], Value]) -> Value:
    with sources.opened(path) as file, sources.input_errors(path):
        try:
            return read(file)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged: {error}") from error


class FromResult(BaseEstimator):
    """An estimator that can be saved, and restored from the result folder of its command."""

    #: Name of the command.
    _command: ClassVar[str]
    #: Whether later input may have further columns.
    _chose_columns: bool

    def save(self, folder: ResultPath, *, overwrite: bool = False) -> None:
        """Write the fitted estimator to a folder, which `load` and ``ripieno predict`` read.

        The folder holds numbers, as model.json and .npy files, and no code. It appears as a whole or not at all.
        Parameters that are arrays or objects, such as an array for ``init``, are left out.

        Parameters
        ----------
        folder : path or URL
            Folder to write.
        overwrite : bool, default=False
            Replace a model in the folder. Other files there are an error.

        Raises
        ------
        InputError
            The folder cannot be written, or has contents.
        NotFittedError
            The estimator is not fitted.
        """
        check_is_fitted(self)
        arrays, facts = self._saved_arrays(), self._saved_facts()
        names = (*(f"{name}.npy" for name in arrays), "model.json") if overwrite else ()
        check_new_folder(folder, names)
        parameters = {name: getattr(self, name) for name in names_of(type(self), "model")}
        description = {
            "algorithm": self._command,
            "ripieno_version": __version__,
            "parameters": {name: value for name, value in parameters.items() if _is_plain(value)},
            "column_names": list(getattr(self, "feature_names_in_", [])) or None,
            "column_count": self.n_features_in_,
            **facts,
        }
        with new_folder(folder, names) as part:
            for name, array in arrays.items():
                save_array(part / f"{name}.npy", array)
            disk.write_text(part / "model.json", ResultFolder.text(description))

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Restore the fitted estimator from a folder that `save` or its command has written.

        The restored estimator makes the same predictions as the original. Workers, threads and engine have the defaults
        of a new estimator. It has no `report_`. The folder contains the report as a page.

        Parameters
        ----------
        folder : path or URL
            Folder with model.json and arrays.

        Returns
        -------
        The estimator, fitted.

        Raises
        ------
        InputError
            The folder contains no result, a damaged result, or a result of another command.
        """
        result = ResultFolder.read(folder)
        if result.algorithm != cls._command:
            raise InputError(
                f"{result.path} holds a result of `ripieno {result.algorithm}`: {cls.__name__} reads "
                f"results of `ripieno {cls._command}`"
            )
        known = names_of(cls, "model")
        model = cls(**{name: value for name, value in result.fact("parameters", dict).items() if name in known})
        model.n_features_in_ = result.column_count
        names = result.description.get("column_names")
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
            model._chose_columns = True
        model._restore(result)
        return model

    @abstractmethod
    def _saved_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fitted arrays that `_restore` reads, by name."""

    @abstractmethod
    def _saved_facts(self) -> dict[str, Any]:
        """Return the fitted numbers and names that `_restore` reads, by name."""

    @abstractmethod
    def _restore(self, result: ResultFolder) -> None:
        """Set the fitted attributes from the contents of the folder."""


def _is_plain(value: object) -> bool:
    """Return whether model.json stores the value of a parameter: a number, a string, or a dict of these."""
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    return value is None or isinstance(value, bool | int | float | str | np.bool_ | np.number | np.str_)


def _as_json(value: Any) -> Any:
    """Return a value in the form of model.json; see `ResultFolder.text`."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {name: _as_json(each) for name, each in value.items()}
        return [[_as_json(key), _as_json(each)] for key, each in value.items()]
    return list(map(_as_json, value)) if isinstance(value, list | tuple) else value


def _restored(value: Any) -> Any:
    """Return the value of a parameter or number from its form in model.json."""
    if isinstance(value, list) and value and all(map(_is_pair, value)):
        return {key: _restored(each) for key, each in value}
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _is_pair(value: object) -> bool:
    """Return whether a value of a JSON text is a pair of a key and a value of a dict."""
    return isinstance(value, list) and len(value) == 2 and not isinstance(value[0], list | dict)
