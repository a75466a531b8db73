"""Properties of all estimators: each parameter is stored, documented and checked as declared."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import ripieno as rp
from ripieno import algorithms
from ripieno.algorithms.domains import Flag, Number, OneOf, Seed, Whole
from ripieno.algorithms.parameters import parameters_of

ESTIMATORS = [getattr(algorithms, name) for name in algorithms.__all__]

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.__name__)


def documented(estimator: type) -> dict[str, str]:
    """Return the documentation of each parameter."""
    section = re.search(r"^Parameters\n-+\n(.*?)^\w+\n-+\n", inspect.getdoc(estimator), re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^(\w+) : (.*?)\n+(?=^\w|\Z)", section, re.MULTILINE | re.DOTALL))


@every_estimator
def test_every_parameter_is_documented_and_stored(estimator):
    parameters = inspect.signature(estimator).parameters

    assert list(documented(estimator)) == list(parameters) == list(parameters_of(estimator))
    values = {name: each.default if each.default is not each.empty else 3 for name, each in parameters.items()}
    assert estimator(**values).get_params(deep=False) == values


@every_estimator
def test_every_value_outside_a_domain_is_reported_with_its_name(estimator):
    required = {name: 0 for name, each in inspect.signature(estimator).parameters.items() if each.default is each.empty}
    for name, each in parameters_of(estimator).items():
        if isinstance(each.domain, Whole | Number | OneOf | Flag | Seed):
            with pytest.raises(
                rp.InputError, match=rf"{name}='no such value': expected {re.escape(each.domain.expected)}"
            ):
                estimator(**{**required, name: "no such value"}).fit([[0, 1], [1, 2]])


@every_estimator
def test_the_documentation_of_a_fit_has_the_common_arguments_and_errors(estimator):
    doc = inspect.getdoc(estimator.fit)

    assert all(f"\n{name} : " in doc for name in ("comm", "rows"))
    assert all(
        f"\n{name}\n    " in doc for name in ("InputError", "CheckpointError", "CollectiveMismatch", "RankFailed")
    )


@every_estimator
def test_every_annotated_result_is_documented(estimator):
    doc = inspect.getdoc(estimator)
    annotated = {name for base in estimator.__mro__[:2] for name in inspect.get_annotations(base) if name.endswith("_")}

    assert [name for name in annotated if not re.search(rf"^(\w+, )*{name}(, \w+)* :", doc, re.MULTILINE)] == []


def test_a_constructor_refuses_unknown_and_extra_arguments():
    with pytest.raises(TypeError, match=r"KMeans\(\) got an unexpected keyword argument 'clusters'"):
        rp.KMeans(clusters=3)
    with pytest.raises(TypeError, match=r"KMeans\(\) too many positional arguments"):
        rp.KMeans(3, "random")
    with pytest.raises(TypeError, match=r"BFS\(\) missing a required argument: 'source'"):
        rp.BFS()


def test_the_page_on_new_estimators_and_parameters_is_true():
    page = (Path(__file__).parents[2] / "docs/adding-an-estimator.md").read_text()
    scope = {"__name__": "page"}
    # Later programs use the names of earlier ones, so `py` marks them for this test.
    programs = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == 6
    for program in programs:
        exec(compile(program, "adding-an-estimator.md", "exec", dont_inherit=True), scope)
