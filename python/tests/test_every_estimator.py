"""Properties of all estimators: each parameter is stored, documented and checked as declared."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest
import ripieno as rp
from ripieno import algorithms
from ripieno.algorithms.domains import Flag, Integer, Number, OneOf, Seed
from ripieno.algorithms.parameters import Options, arguments_of, parameters_of, with_options
from sklearn.base import clone

ESTIMATORS = [getattr(algorithms, name) for name in algorithms.__all__]

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.__name__)


def documented(estimator: type) -> dict[str, str]:
    """Return the documentation of each parameter."""
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?:^\w+\n-+\n|\Z)", inspect.getdoc(estimator), re.MULTILINE | re.DOTALL
    )[1]
    return dict(re.findall(r"^(\w+) : (.*?)\n+(?=^\w|\Z)", f"{section}\n", re.MULTILINE | re.DOTALL))


@every_estimator
def test_every_parameter_is_documented_and_stored(estimator):
    parameters = inspect.signature(estimator).parameters

    assert list(documented(estimator)) == list(parameters) == list(arguments_of(estimator))
    values = {name: each.default if each.default is not each.empty else 3 for name, each in parameters.items()}
    assert estimator(**values).get_params(deep=False) == values


@every_estimator
def test_every_value_outside_a_domain_is_reported_with_its_name(estimator):
    required = {name: 0 for name, each in inspect.signature(estimator).parameters.items() if each.default is each.empty}
    for name, each in parameters_of(estimator).items():
        if isinstance(each.domain, Integer | Number | OneOf | Flag | Seed):
            with pytest.raises(
                rp.InputError, match=rf"{name}='no such value': expected {re.escape(each.domain.expected)}"
            ):
                estimator(**with_options(estimator, {**required, name: "no such value"})).fit([[0, 1], [1, 2]])


@every_estimator
def test_options_are_one_immutable_argument(estimator):
    if "options" not in inspect.signature(estimator).parameters:
        assert not hasattr(estimator, "Options")
        return
    required = {name: 0 for name, each in inspect.signature(estimator).parameters.items() if each.default is each.empty}
    declared = parameters_of(estimator.Options)
    options = estimator.Options(every=5)
    model = estimator(**required, options=options)

    assert isinstance(options, Options) and repr(options) == f"{type(options).__name__}(every=5)"
    assert options == estimator.Options(every=5) != estimator.Options() and hash(options) == hash(options.replaced())
    assert list(documented(estimator.Options)) == list(inspect.signature(estimator.Options).parameters) == [*declared]
    assert all(f"\n    {name} : " in documented(estimator)["options"] for name in declared)
    assert pickle.loads(pickle.dumps(model)).options == clone(model).options == options
    assert model.every == 5 and model.get_params()["options__every"] == 5
    assert model.set_params(options__every=7).options == estimator.Options(every=7) and options.every == 5
    with pytest.raises(AttributeError, match="is immutable"):
        options.every = 6
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'often'"):
        model.set_params(options__often=3)
    with pytest.raises(
        rp.InputError, match=r"options={'every': 5}: expected .*FitOptions, as Options\(name=value, …\)"
    ):
        estimator(**required, options={"every": 5}).fit([[0, 1], [1, 2]])


@every_estimator
def test_options_by_their_former_names_work_with_a_warning(estimator):
    required = {name: 0 for name, each in inspect.signature(estimator).parameters.items() if each.default is each.empty}
    for name, each in parameters_of(getattr(estimator, "Options", object)).items():
        given = rf"{estimator.__name__}\({name}=…\) is deprecated, use options={estimator.__name__}.Options\({name}=…\)"
        value = next(v for v in (3, *getattr(each.domain, "names", ())) if each.domain.accepts(v) and v != each.default)
        expected = estimator.Options(**{name: value})
        with pytest.warns(DeprecationWarning, match=given) as warned:
            assert estimator(**required, **{name: value}).options == expected
        assert warned[0].filename == __file__
        model = estimator(**required)
        with pytest.warns(DeprecationWarning, match=given):
            assert model.set_params(**{name: value}).options == expected
        with pytest.warns(DeprecationWarning, match=given):
            setattr(model, name, each.default)
        assert model.options == estimator.Options()


#: Names of other libraries, and former ones, for a parameter that estimators name equally.
FORMER = {
    "max_iter": ("iterations", "max_iterations", "n_iterations", "n_iter", "maxiter", "epochs"),
    "tol": ("threshold", "tolerance", "eps", "epsilon"),
    "n_components": ("dim", "dimensions", "components"),
    "n_clusters": ("clusters", "k_clusters"),
    "random_state": ("seed",),
}


@every_estimator
def test_the_same_parameter_has_the_same_name_in_every_estimator(estimator):
    required = {name: 0 for name, each in inspect.signature(estimator).parameters.items() if each.default is each.empty}
    declared = parameters_of(estimator)

    assert declared.keys() & {each for names in FORMER.values() for each in names} == set()
    for name, each in declared.items():
        for former in each.former:
            assert former in FORMER[name] and former not in inspect.signature(estimator).parameters
            with pytest.warns(
                DeprecationWarning, match=rf"{former}= of {estimator.__name__} is deprecated, use {name}="
            ):
                model = estimator(**required, **{former: 3})
            assert model.get_params() == estimator(**required, **{name: 3}).get_params()
            with pytest.warns(DeprecationWarning, match=f"use {name}="):
                assert getattr(model.set_params(**{former: 4}), name) == 4
            with pytest.warns(DeprecationWarning, match=f"use {name}="):
                assert getattr(model, former) == 4
            with pytest.warns(DeprecationWarning, match=f"use {name}="):
                setattr(model, former, 5)
            assert getattr(model, name) == 5
            with pytest.raises(TypeError, match=rf"{estimator.__name__}\(\) got '{name}' twice"):
                estimator(**required, **{name: 3, former: 3})


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


def test_parameters_of_scikit_learn_with_other_names_are_named():
    with pytest.raises(TypeError, match=r"argument 'penalty'; instead of penalty, use l1_ratio=1 for 'l1'"):
        rp.LogisticRegression(penalty="l1")
    with pytest.raises(TypeError, match=r"argument 'n_jobs'; instead of n_jobs, use workers= and threads="):
        rp.KMeans(n_jobs=2)
    with pytest.raises(TypeError, match=r"argument 'penalty'$"):
        rp.KMeans(penalty="l1")


def test_the_page_on_new_estimators_and_parameters_is_true(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/adding-an-estimator.md").read_text()
    scope = {"__name__": "page"}
    # Later programs use the names of earlier ones, so `py` marks them for this test.
    programs = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(programs) == 7
    for program in programs:
        exec(compile(program, "adding-an-estimator.md", "exec", dont_inherit=True), scope)
