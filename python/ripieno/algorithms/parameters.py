"""Parameters of estimators. Each is declared once, with its type, default, domain and sentence.

A class with the decorator `declared` holds declarations (`parameter`). Its subclasses, the estimators, receive the
constructor. Checks of values, the documentation, options of commands, parameters of Spark's wrapper, and the lists of
parameters that ranks compare and reports show are derived from these declarations.

Parameters that tune a fit are declared in a subclass of `FitOptions`. An estimator receives them in its one argument
`options`. Commands, checkpoints, reports and Spark use them by name, as they use other parameters.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_args

import numpy as np

from ripieno import log
from ripieno._checks import THREADS_MAX
from ripieno._types import OnFailure
from ripieno.algorithms.domains import Domain, Folder, Integer, OneOf, Seed
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine

Declared = TypeVar("Declared", bound=type)

#: Subject of a parameter: the fitted model, the tuning of a fit (the argument `options`), the display of progress, the
#: storage of a fit, or its workers.
Role = Literal["model", "tuning", "showing", "saving", "running"]

_ROLES: tuple[Role, ...] = get_args(Role)
_REQUIRED = inspect.Parameter.empty
#: Parameters of scikit-learn that estimators replace: the name of a replacement, and the remedy for callers.
_REPLACED = {
    "n_jobs": ("workers", "workers= and threads="),
    "penalty": ("l1_ratio", "l1_ratio=1 for 'l1', 0 for 'l2' and between for 'elasticnet'; C=inf for None"),
}


@dataclass(frozen=True)
class Parameter:
    """The declaration of one parameter.

    Parameters
    ----------
    name
        Name in Python. The option of a command has this name with dashes.
    annotation
        The type annotation, as text.
    domain
        The valid values.
    text
        Documentation. A command shows the first paragraph as the help of its option.
    default
        The default; `inspect.Parameter.empty` if there is none.
    kw_only
        Whether calls must pass it by name.
    role
        The subject of the parameter.
    options
        Names that a command shows instead of the Python name, which commands also accept.
    aliases
        Further names in commands that are accepted but not shown.
    former
        Earlier names in Python, which are accepted with a warning; commands accept them as they accept aliases.
    has_option
        Whether commands have an option for it.
    may_change
        Whether a fit may resume from a checkpoint with another value. Parameters of other roles always may.
    """

    name: str
    annotation: str
    domain: Domain
    text: str
    default: Any
    kw_only: bool
    role: Role
    options: tuple[str, ...]
    aliases: tuple[str, ...]
    former: tuple[str, ...]
    has_option: bool
    may_change: bool

    @property
    def entry(self) -> str:
        """Return the entry in a section of parameters; it includes the entries of options."""
        default = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        type = self.domain.type if self.default is _REQUIRED else f"{self.domain.type}, default={default}"
        text = "\n".join([self.text, *(f"\n{each.entry}".rstrip() for each in self.entries.values())])
        return f"{self.name} : {type}\n{indent(text, '    ')}\n"

    @property
    def entries(self) -> Mapping[str, Parameter]:
        """Return the declarations of the options that this parameter holds, by name; empty for others."""
        return parameters_of(self.domain.kind) if isinstance(self.domain, OptionsOf) else {}

    @property
    def summary(self) -> str:
        """Return the first paragraph of the documentation as one line."""
        return " ".join(re.split(_PARAGRAPH, self.text)[0].split())

    def check(self, value: Any) -> None:
        """Raise InputError if a value is invalid."""
        if not self.domain.accepts(value):
            raise InputError(f"{self.name}={value!r}: expected {self.domain.expected}")


_PARAGRAPH = r"\n\s*\n"


def parameter(
    domain: Domain,
    text: str,
    *,
    default: Any = _REQUIRED,
    kw_only: bool = True,
    role: Role = "model",
    options: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    former: tuple[str, ...] = (),
    has_option: bool = True,
    may_change: bool = False,
) -> Any:
    """Declare a parameter in the body of a `declared` class. `Parameter` describes the arguments."""
    text = inspect.cleandoc(text)
    return Parameter("", "", domain, text, default, kw_only, role, options, aliases, former, has_option, may_change)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def declared(cls: Declared) -> Declared:
    """Collect the parameters that a class and its bases declare, and give the class a constructor that stores them.

    Parameters are ordered by role, and own parameters precede inherited ones. A class attribute such as
    ``_more_random_state`` adds sentences to the documentation of an inherited parameter.
    """
    own: dict[str, Parameter] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        found = cls.__dict__.get(name)
        if isinstance(found, Parameter):
            own[name] = replace(found, name=name, annotation=annotation)
    collected = dict(own)
    for base in cls.__bases__:
        for name, each in arguments_of(base).items():
            collected.setdefault(name, each)
    for name, each in collected.items():
        if f"_more_{name}" in vars(cls):
            collected[name] = replace(each, text=f"{each.text}\n\n{inspect.cleandoc(vars(cls)[f'_more_{name}'])}")
    for name in own:
        # As in a dataclass, the class has the default.
        if own[name].default is _REQUIRED:
            delattr(cls, name)
        else:
            setattr(cls, name, own[name].default)
    collected = dict(sorted(collected.items(), key=lambda item: (item[1].kw_only, _ROLES.index(item[1].role))))
    options = collected["options"].entries if "options" in collected else {}
    collected = {name: each for name, each in collected.items() if name not in options}
    cls.__init__ = _constructor(collected, options)  # type: ignore[misc]
    for name in options:
        setattr(cls, name, _option(name))
    for each in own.values():
        for former in each.former:
            setattr(cls, former, _former(former, each.name))
    if "options" in collected:
        cls.Options = collected["options"].domain.kind  # type: ignore[attr-defined]
    if issubclass(cls, Options):
        entries = "".join(each.entry for each in collected.values())
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nParameters\n----------\n{entries}"
    cls._declared = collected  # type: ignore[attr-defined]
    return cls


def _option(name: str) -> property:
    """Return the attribute of an estimator for one of its options."""

    def get(self: Any) -> Any:
        return getattr(options_of(self), name)

    def set_to(self: Any, value: Any) -> None:
        warn_of_names(type(self), [name])
        self.options = options_of(self).replaced(**{name: value})

    return property(get, set_to, doc=f"The option `{name}`.")


def _former(former: str, name: str) -> property:
    """Return the attribute of an estimator with the former name of a parameter."""

    def get(self: Any) -> Any:
        _warn_of_former(type(self), former, name)
        return getattr(self, name)

    def set_to(self: Any, value: Any) -> None:
        _warn_of_former(type(self), former, name)
        setattr(self, name, value)

    return property(get, set_to, doc=f"The parameter `{name}`. Deprecated: use `{name}`.")


def _warn_of_former(estimator: type, former: str, name: str) -> None:
    log.warn(f"{former}= of {estimator.__name__} is deprecated, use {name}=", DeprecationWarning)


def with_current_names(estimator: type, values: Mapping[str, Any], *, warn: bool = True) -> dict[str, Any]:
    """Return values of parameters by their present names; former names of parameters are deprecated.

    Raises
    ------
    TypeError
        A parameter has two values, by both of its names.
    """
    names = {former: each.name for each in parameters_of(estimator).values() for former in each.former}
    current: dict[str, Any] = {}
    for given, value in values.items():
        name = names.get(given, given)
        if name in current:
            raise TypeError(f"{estimator.__name__}() got {name!r} twice: {name!r} is the new name of a parameter")
        if name != given and warn:
            _warn_of_former(estimator, given, name)
        current[name] = value
    return current


def warn_of_names(estimator: type, names: Sequence[str]) -> None:
    """Warn of options that a caller gives as if they were parameters."""
    given = ", ".join(f"{name}=…" for name in names)
    log.warn(
        f"{estimator.__name__}({given}) is deprecated, use options={estimator.__name__}.Options({given})",
        DeprecationWarning,
    )


def _constructor(parameters: Mapping[str, Parameter], options: Mapping[str, Parameter]) -> Callable[..., None]:
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    accepted = [
        inspect.Parameter(
            each.name, keyword if each.kw_only else positional, default=each.default, annotation=each.annotation
        )
        for each in parameters.values()
    ]
    signature = inspect.Signature([inspect.Parameter("self", positional), *accepted], return_annotation="None")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs = with_current_names(type(self), kwargs)
        former = [name for name in kwargs if name in options]
        if former:
            warn_of_names(type(self), former)
            kwargs = with_options(type(self), kwargs)
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            remedies = [
                f"; instead of {name}, use {remedy}"
                for name, (replacement, remedy) in _REPLACED.items()
                if name in kwargs and replacement in parameters
            ]
            raise TypeError(f"{type(self).__name__}() {error}{''.join(remedies)}") from None
        bound.apply_defaults()
        vars(self).update((name, bound.arguments[name]) for name in parameters)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def with_options(estimator: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of parameters as arguments of an estimator: values of its options become `options`."""
    holder = arguments_of(estimator).get("options")
    if holder is None or not (names := holder.entries.keys() & values.keys()):
        return dict(values)
    others = {name: value for name, value in values.items() if name not in names}
    options = others.get("options") or estimator.Options()
    holder.check(options)
    options = options.replaced(**{name: values[name] for name in names})
    return others | {"options": None if options == estimator.Options() else options}


def parameters_of(estimator: type) -> Mapping[str, Parameter]:
    """Return the declared parameters of an estimator, or of a class of parameters, by name.

    The options of an estimator follow the parameter `options`.
    """
    return {
        name: each
        for outer in arguments_of(estimator).values()
        for name, each in ((outer.name, outer), *outer.entries.items())
    }


def arguments_of(estimator: type) -> Mapping[str, Parameter]:
    """Return the declared parameters of the constructor, by name; options are within the parameter `options`."""
    found: Mapping[str, Parameter] = getattr(estimator, "_declared", {})
    return found


def options_of(estimator: Any) -> Any:
    """Return the options of an estimator, or the default options."""
    return estimator.Options() if estimator.options is None else estimator.options


def names_of(estimator: type, *roles: Role) -> list[str]:
    """Return the names of the parameters that have one of the roles."""
    return [name for name, each in parameters_of(estimator).items() if each.role in roles]


def compared_parameters(estimator: type) -> list[str]:
    """Return the names of the parameters that a checkpoint compares, without parameters that have one entry per row."""
    rows: Sequence[str] = getattr(estimator, "_row_parameters", ())
    declarations = parameters_of(estimator)
    return [name for name in names_of(estimator, "model") if not declarations[name].may_change and name not in rows]


def check_parameters(estimator: object, declaring: type | None = None) -> None:
    """Raise InputError if a parameter of an estimator, or of one of its classes, is not in its domain."""
    for name, each in parameters_of(declaring or type(estimator)).items():
        each.check(getattr(estimator, name))


class Options:
    """Base of options, which are immutable. Its subclasses have the decorator `declared`."""

    def replaced(self, **values: Any) -> Self:
        """Return a copy of the options with other values."""
        return type(self)(**{**vars(self), **values})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the values by name. With it, scikit-learn lists ``options__every`` among the parameters."""
        return dict(vars(self))

    def __sklearn_clone__(self) -> Self:
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        raise AttributeError(
            f"{kind} is immutable: expected a new {kind}({name}={value!r}), or set_params of the model"
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        changed = (f"{n}={v!r}" for n, v in vars(self).items() if v != parameters_of(type(self))[n].default)
        return f"{type(self).__name__}({', '.join(changed)})"


class OptionsOf(Domain):
    """Options of a class."""

    def __init__(self, kind: type[Options]) -> None:
        super().__init__(
            kind.__name__, f"{kind.__name__}, as Options(name=value, …) of the estimator creates it", also=(None,)
        )
        self.kind = kind

    def _has(self, value: Any) -> bool:
        return type(value) is self.kind


@declared
class WorkerParameters:
    """Parameters of every estimator: the workers of a fit."""

    workers: int = parameter(
        Integer(1),
        "Number of ranks. A single local rank runs in the calling process.",
        default=1,
        role="running",
    )
    threads: int | None = parameter(
        Integer(1, THREADS_MAX, also=(None,)),
        "Threads per worker. Default: an even share of the machine's cores, or the cores of an engine's slot.",
        default=None,
        role="running",
    )
    engine: str | Engine | Job = parameter(
        Domain("str, Engine or Job"),
        """Where workers run, as in `ripieno.launch`. If this is a running job, the fit uses all of its workers.""",
        default="local",
        role="running",
    )
    on_failure: OnFailure = parameter(
        OneOf(*get_args(OnFailure)),
        """If a worker dies or stops responding: fail (raise), restart on the survivors (shrink), or restart with
        replacements (respawn).

        `ripieno.launch` has the same parameter. A restarted fit resumes from its last saved state. A running job uses
        its own setting.""",
        default="raise",
        role="running",
    )


@declared
class FitOptions(Options):
    """Options of every fit that iterates."""

    every: int | None = parameter(
        Integer(1, also=(None,)),
        """Number of iterations between two saves of the fit: to the `checkpoint` folder, and to memory if `on_failure`
        restarts fits. Default: to the folder at most once a second, and to memory after each iteration.

        It does not affect `n_iter_`. Each save to the folder costs a disk write.""",
        default=None,
        role="saving",
    )
    keep: int = parameter(
        Integer(1),
        """Number of saved states to keep in the `checkpoint` folder. If the last one is damaged, a fit resumes from the
        one before, with a warning.""",
        default=1,
        role="saving",
    )


@declared
class FitParameters(WorkerParameters):
    """Parameters of every estimator that iterates: the parameters of `WorkerParameters`, and the storage of a fit."""

    checkpoint: str | os.PathLike[str] | None = parameter(
        Folder(),
        """Folder for saved state, accessible to rank 0. A later fit of the same data with the same parameters resumes
        from it, with any number of workers.

        The running fit saves there, at most once a second. Some parameters, such as `max_iter`, may differ: the page on
        failures lists them.""",
        default=None,
        role="saving",
    )
    options: FitOptions | None = parameter(
        OptionsOf(FitOptions),
        "Tuning of the fit, as `Options(name=value, …)` of the estimator.",
        default=None,
        role="tuning",
    )
    Options: ClassVar[type[FitOptions]]


@declared
class ObservedParameters:
    """The parameter of estimators that report events during a fit."""

    on_iteration: Callable[[dict[str, Any]], None] | None = parameter(
        Domain("callable or None"),
        'Called in the calling process with a dict for each step of the fit. Its key "event" names the step.',
        default=None,
        role="showing",
        has_option=False,
    )


@declared
class VerboseParameters(ObservedParameters):
    """Parameters of estimators that report events, or print them."""

    verbose: int = parameter(
        Domain("int"), "If above 0, print a line per iteration.", default=0, role="showing", has_option=False
    )


@declared
class RandomParameters:
    """The parameter of estimators that use random numbers."""

    random_state: int | np.random.RandomState | None = parameter(
        Seed(),
        "Source of random numbers; the same int gives the same result.",
        default=None,
        options=("--seed",),
    )
