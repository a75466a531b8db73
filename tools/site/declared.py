"""Reference of estimators: constructors and documentation that Python makes from declared parameters.

An extension of griffe, which otherwise reads the source. Used by mkdocstrings.
"""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class DeclaredParameters(griffe.Extension):
    """Replaces the documentation and constructor of each estimator by those that the imported class has."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete all estimators, and their base classes, in a package."""
        if pkg.name != "ripieno":
            return
        from ripieno import algorithms

        estimators = [getattr(algorithms, name) for name in algorithms.__all__]
        for owner in {
            each for estimator in estimators for each in estimator.__mro__ if each.__module__.startswith("ripieno.")
        }:
            found = pkg[f"{owner.__module__}.{owner.__name__}".removeprefix("ripieno.")]
            for name, function in vars(owner).items():
                if inspect.isfunction(function) and name in found.members:
                    _document(found.members[name], function)
            if owner in estimators:
                _document(found, owner)
                found.set_member("__init__", _constructor(owner))
                # The package exports the names of a stub.
                pkg.set_member(owner.__name__, griffe.Alias(owner.__name__, found))


def _document(found: griffe.Object, documented: Any) -> None:
    if found.docstring is not None:
        found.docstring.value = inspect.getdoc(documented) or ""


def _constructor(estimator: type) -> griffe.Function:
    parameters = [
        griffe.Parameter(
            each.name,
            annotation=str(each.annotation),
            kind=griffe.ParameterKind(each.kind.description),
            default=None if each.default is each.empty else repr(each.default),
        )
        for each in inspect.signature(estimator).parameters.values()
    ]
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters))
