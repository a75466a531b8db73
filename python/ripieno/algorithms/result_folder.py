"""Save fitted estimators to folders, and load them from there and from the result folders of commands."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ripieno._version import __version__
from ripieno.algorithms.parameters import names_of, parameters_of, with_current_names, with_options
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
        return self.entry("algorithm", str)

    @property
    def column_count(self) -> int:
        """Return the number of columns that the model was fitted on."""
        return self.entry("column_count", int)

    def entry(self, name: str, *kinds: type[Value]) -> Value:
        """Return an entry of model.json.

        Raises
        ------
        InputError
            The entry is missing or has another type.
        """
        value = self.description.get(name)
        if float in kinds:
            value = _restored(value)
        if not isinstance(value, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise InputError(f"{self.path}/model.json: {name!r} is {value!r}, expected a {expected}")
        return value

    def array(self, name: str, *shape: int | None, is_finite: bool = True) -> NDArray[Any]:
        """Read an array of the folder; None in `shape` accepts any length, `is_finite` refuses infinity and NaN.

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
        if is_finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{path} holds values that are not finite")
        return array


def _read(path: str, read: Callable[[IO[bytes]], Value]) -> Value:
    with sources.opened(path) as file, sources.input_errors(path):
        try:
            return read(file)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged: {error}") from error


#: Names of entries of a result, by the attribute. Other entries have the name of the attribute, without underscores.
_ENTRY_NAMES = {
    "_is_libsvm": "libsvm",
    "_target_name": "target",
    "cluster_centers_": "centroids",
    "n_communities_": "community_count",
    "n_components_": "component_count",
    "n_iter_": "iteration_count",
    "n_samples_": "row_count",
    "n_steps_": "step_count",
}
#: Names of fitted attributes.
_RESULT = re.compile(r"[a-z]\w*_")
#: Types of numbers and strings, by the annotation of the attribute.
_KINDS: dict[str, type] = {"bool": bool, "float": float, "int": int, "str": str, "None": type(None)}


class SavedEstimator(BaseEstimator):
    """An estimator that can be saved to a folder, and restored from it or from the result folder of its command.

    A class declares its fitted attributes by annotations. Each array is a file, and numbers and strings are entries of
    model.json.
    """

    #: Name of the command; of estimators without one, the name of the class.
    _command: ClassVar[str]
    #: Fitted attributes with private names.
    _private_results: ClassVar[tuple[str, ...]] = ()
    #: Fitted attributes that only some fits set.
    _optional_results: ClassVar[tuple[str, ...]] = ()
    #: Fitted arrays that may hold infinity or NaN.
    _unbounded_results: ClassVar[tuple[str, ...]] = ()
    #: Whether later input may have further columns.
    _chose_columns: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_command" not in cls.__dict__:
            cls._command = cls.__name__

    def save(self, folder: ResultPath, *, overwrite: bool = False) -> None:
        """Write the fitted estimator to a folder, which `load` and ``ripieno predict`` read.

        The folder holds numbers and strings, as model.json and .npy files, and no code. It appears as a whole or not at
        all. Parameters that are arrays or objects, such as an array for ``init``, are left out.

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
        TypeError
            The class does not declare a fitted attribute.
        """
        check_is_fitted(self)
        known = {*_annotations(type(self)), "report_", "feature_names_in_"}
        for name, value in vars(self).items():
            if _RESULT.fullmatch(name) and name not in known:
                kind = "NDArray[…]" if isinstance(value, np.ndarray) else type(value).__name__
                raise TypeError(f"{type(self).__name__} does not declare {name}: expected {name}: {kind} in the class")
        names = result_files(type(self)) if overwrite else ()
        check_new_folder(folder, names)
        parameters = {name: getattr(self, name) for name in names_of(type(self), "model")}
        description = {
            "algorithm": self._command,
            "ripieno_version": __version__,
            "parameters": {name: value for name, value in parameters.items() if _is_plain(value)},
            "column_names": list(getattr(self, "feature_names_in_", [])) or None,
            **self._saved_entries(),
        }
        write_result(folder, self._saved_arrays(), description, replaceable=names)

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Restore the fitted estimator from a folder that `save` or its command has written.

        The restored estimator makes the same predictions as the original. Workers, threads and engine have the defaults
        of a new estimator. It has no `report_`. The folder of a command contains the report as a page.

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
            The folder contains no result, a damaged result, or a result of another command or estimator.
        """
        result = ResultFolder.read(folder)
        if result.algorithm != cls._command:
            raise InputError(
                f"{result.path} holds a result of {_named(result.algorithm)}: {cls.__name__} reads results of "
                f"{_named(cls._command)}"
            )
        parameters = with_current_names(cls, result.entry("parameters", dict), warn=False)
        known = parameters_of(cls)
        restored = {
            # JSON has lists only.
            name: tuple(parameters[name]) if isinstance(known[name].default, tuple) else parameters[name]
            for name in names_of(cls, "model")
            if name in parameters
        }
        model = cls(**with_options(cls, restored))
        names = result.description.get("column_names")
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
            model._chose_columns = True
        model._restore(result)
        return model

    def _saved_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fitted arrays by the names of their files, without suffix."""
        entries = self._entries()
        return {name: value for name, value in entries.items() if isinstance(value, np.ndarray)}

    def _saved_entries(self) -> dict[str, Any]:
        """Return the fitted numbers and strings, the number of columns, and the shapes of the arrays, by name."""
        entries = self._entries()
        others = {name: value for name, value in entries.items() if not isinstance(value, np.ndarray)}
        columns = {"column_count": self.n_features_in_} if hasattr(self, "n_features_in_") else {}
        shapes = {name: value.shape for name, value in entries.items() if isinstance(value, np.ndarray)}
        return {**columns, **others, "arrays": shapes}

    def _entries(self) -> dict[str, Any]:
        annotations = _annotations(type(self))
        found = {}
        for name in (*_results(type(self)), *self._private_results):
            if hasattr(self, name):
                value = getattr(self, name)
                # A number for one target, and an array for several, are an array of the result.
                found[_entry_name(name)] = np.atleast_1d(value) if "ndarray" in annotations[name].lower() else value
        return found

    def _restore(self, result: ResultFolder) -> None:
        """Set the fitted attributes from the contents of the folder."""
        shapes = result.entry("arrays", dict)
        annotations = _annotations(type(self))
        for name in (*_results(type(self)), *self._private_results):
            entry = _entry_name(name)
            if entry in shapes:
                shape = shapes[entry]
                if not isinstance(shape, list):
                    raise InputError(f"{result.path}/model.json: shape of {entry!r} is {shape!r}, expected a list")
                setattr(self, name, result.array(entry, *shape, is_finite=name not in self._unbounded_results))
            elif entry in result.description:
                setattr(self, name, result.entry(entry, *_kinds(annotations[name])))
            elif name not in self._optional_results:
                raise InputError(f"{result.path}/model.json has no {entry!r}")
        if "n_features_in_" in annotations:
            self.n_features_in_ = result.column_count


def write_result(
    folder: ResultPath,
    arrays: Mapping[str, NDArray[Any]],
    description: Mapping[str, Any],
    *,
    replaceable: Collection[str],
) -> None:
    """Write arrays and model.json as a whole or not at all. Only `replaceable` files are replaced."""
    with new_folder(folder, replaceable) as part:
        for name, array in arrays.items():
            save_array(part / f"{name}.npy", array)
        disk.write_text(part / "model.json", ResultFolder.text(description))


def result_files(estimator: type[SavedEstimator]) -> tuple[str, ...]:
    """Return the names of all files that a saved model may have."""
    names = map(_entry_name, (*_results(estimator), *estimator._private_results))
    return (*(f"{name}.npy" for name in names), "model.json")


def _annotations(estimator: type) -> dict[str, str]:
    """Return the annotations of the attributes of a class and its bases, as text."""
    return {
        name: given if isinstance(given, str) else inspect.formatannotation(given)
        for base in reversed(estimator.__mro__)
        for name, given in inspect.get_annotations(base).items()
    }


def _results(estimator: type) -> list[str]:
    """Return the names of the fitted attributes that a class declares, except those that `load` sets itself."""
    own = ("report_", "n_features_in_", "feature_names_in_")
    return [name for name in _annotations(estimator) if _RESULT.fullmatch(name) and name not in own]


def _entry_name(attribute: str) -> str:
    return _ENTRY_NAMES.get(attribute, attribute.strip("_"))


def _kinds(annotation: str) -> tuple[type, ...]:
    """Return the types of numbers and strings that an annotation allows."""
    return tuple(_KINDS[each] for each in annotation.split(" | ") if each in _KINDS)


def _named(algorithm: str) -> str:
    """Return the name of an estimator or command for messages."""
    return algorithm if algorithm[:1].isupper() else f"`ripieno {algorithm}`"


def _is_plain(value: object) -> bool:
    """Return whether model.json stores the value of a parameter: a number, a string, or a list or dict of these."""
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return not any(isinstance(each, list | tuple | dict) for each in value) and all(map(_is_plain, value))
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
