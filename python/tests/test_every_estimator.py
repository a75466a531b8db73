"""Properties of all estimators: common parameters are stored, and documented with the same text."""

from __future__ import annotations

import inspect
import re

import pytest
from ripieno import algorithms

ESTIMATORS = [getattr(algorithms, name) for name in algorithms.__all__]
SHARED = ("workers", "threads", "engine", "on_failure")

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.__name__)


def documented(estimator: type) -> dict[str, str]:
    """Return the documentation of each parameter."""
    section = re.search(r"^Parameters\n-+\n(.*?)^\w+\n-+\n", inspect.getdoc(estimator), re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^(\w+) : (.*?)\n+(?=^\w|\Z)", section, re.MULTILINE | re.DOTALL))


@every_estimator
def test_every_parameter_is_documented_and_stored(estimator):
    parameters = inspect.signature(estimator).parameters

    assert list(documented(estimator)) == list(parameters)
    values = {name: each.default if each.default is not each.empty else 3 for name, each in parameters.items()}
    assert estimator(**values).get_params(deep=False) == values


@every_estimator
@pytest.mark.parametrize("name", SHARED)
def test_common_parameters_have_the_same_documentation(estimator, name):
    assert documented(estimator)[name] == documented(ESTIMATORS[0])[name]
