"""Options of commands for the declared parameters of an estimator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ripieno.algorithms.domains import Domain, Flag, Folder, Integer, Number, OneOf, Seed
from ripieno.algorithms.parameters import Parameter, names_of, parameters_of, with_options
from ripieno.cli.number_types import Count
from ripieno.cli.options import LocalPath, aliased_option

if TYPE_CHECKING:
    Command = Callable[..., Any]

#: Seed of commands, which give the same result in every run.
DEFAULT_SEED = 0


class _InDomain(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """A number or word of a domain."""

    name = "value"

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a number if it is one."""
        for kind in (int, float, str):
            try:
                converted = kind(value)
            except ValueError:
                continue
            if self._domain.accepts(converted):
                return converted
        self.fail(f"{value!r}: expected {self._domain.expected}", param, ctx)


def parameter_options(declaring: type, *extra: str, required: Collection[str] = ()) -> Callable[[Command], Command]:
    """Add an option for each parameter that `declaring` declares, and for the `extra` ones.

    Parameters that determine where a fit runs are extra: commands have options of their own for them. The command
    receives the arguments of the estimator as a dict in its argument `parameters`.
    """
    declared = parameters_of(declaring)
    names = [*names_of(declaring, "model", "saving"), *extra]
    options = {
        name: option
        for name in names
        if (option := _option_of(declared[name], declared, required=name in required)) is not None
    }

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(**values: Any) -> Any:
            own = with_options(declaring, {name: values.pop(name) for name in options})
            return command(**values, parameters=own)

        made: Command = wrapped
        for option in reversed(options.values()):
            made = option(made)
        return made

    return decorate


def _option_of(
    parameter: Parameter, declared: Mapping[str, Parameter], *, required: bool
) -> Callable[[Command], Command] | None:
    """Return the option of a parameter, or None if a command cannot pass its values."""
    details = _details(parameter.domain)
    if details is None or not parameter.has_option:
        return None
    own = f"--{parameter.name.replace('_', '-')}"
    shown = parameter.options or (own,)
    aliases = [*parameter.aliases, *(f"--{name}" for name in parameter.former)]
    if own not in shown:
        aliases.append(own)
    if isinstance(parameter.domain, Flag) and parameter.default:
        shown = tuple(f"{each}/--no-{each.removeprefix('--')}" for each in shown)
    default = DEFAULT_SEED if isinstance(parameter.domain, Seed) else parameter.default
    return aliased_option(
        *shown,
        parameter.name,
        aliases=aliases,
        help=_help(parameter, declared),
        **({"required": True} if required else {"default": default, "show_default": default is not None}),
        **details,
    )


def _details(domain: Domain) -> dict[str, Any] | None:
    """Return the settings of an option for a domain; None if an option cannot have its values."""
    words = any(isinstance(word, str) for word in domain.also)
    if isinstance(domain, OneOf):
        return {"type": click.Choice(list(domain.names)), "metavar": "METHOD"}
    if isinstance(domain, Flag):
        return {"is_flag": True}
    if isinstance(domain, Seed):
        return {"type": click.IntRange(0, domain.MAX), "metavar": "NUMBER"}
    if isinstance(domain, Folder):
        text = lambda _, __, value: None if value is None else str(value)  # noqa: E731  # a callback of click
        return {"type": LocalPath(file_okay=False), "metavar": "FOLDER", "callback": text}
    if type(domain) is Integer and not words:
        kind = Count(domain.minimum) if domain.maximum is None else click.IntRange(domain.minimum, domain.maximum)
        return {"type": kind, "metavar": "COUNT"}
    if type(domain) is Number and not words:
        minimum = domain.minimum if domain.above is None else domain.above
        maximum = domain.maximum if domain.below is None else domain.below
        numbers = click.FloatRange(minimum, maximum, domain.above is not None, domain.below is not None)
        return {"type": numbers, "metavar": "NUMBER"}
    if isinstance(domain, Integer | Number):
        return {"type": _InDomain(domain), "metavar": "NUMBER"}
    return None


def _help(parameter: Parameter, declared: Mapping[str, Parameter]) -> str:
    """Return the first paragraph of the documentation, with options instead of parameters."""
    text = parameter.summary.replace('"', "")
    for name, each in declared.items():
        option = each.options[-1] if each.options else f"--{name.replace('_', '-')}"
        text = text.replace(f"`{name}`", option)
    names = parameter.domain.names if isinstance(parameter.domain, OneOf) else ()
    if not all(name in text for name in names):
        text = f"{text.removesuffix('.')}: {', '.join(names)}."
    return text.replace("`", "")
