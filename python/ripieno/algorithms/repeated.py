"""Code that repeats a fit, for reports. It requires a session with the named arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any

#: Longest list that is written out.
MAX_LENGTH = 8
#: Classes of `ripieno.input` for files with options.
_FILES = ("BinaryFiles", "TableFiles")


def repeating_code(model: Any, arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return Python code for a fit with these arguments: constructor and fit, after comments about other values.

    `names` has the names of the parameters to repeat. Values without a short literal, such as arrays, appear under the
    name of their parameter.
    """
    named: dict[str, Any] = {}
    kind, called = f"rp.{type(model).__name__}", signature(type(model))
    parameters = {
        name: getattr(model, name)
        for name in names
        if name in called.parameters and not _is_default(called, name, getattr(model, name))
    }
    options = parameters.pop("options", None)
    passed = {name: value for name, value in arguments.items() if not _is_default(signature(model.fit), name, value)}
    created = ", ".join(f"{name}={_code(name, value, named)}" for name, value in parameters.items())
    if options is not None:
        created += f"{', ' * bool(created)}options={kind}.{repr(options).replace(type(options).__name__, 'Options', 1)}"
    first, *others = passed
    fitted = [_code(first, passed[first], named), *(f"{name}={_code(name, passed[name], named)}" for name in others)]
    comments = [f"# {name}: {_described(value)}" for name, value in named.items()]
    call = f"model = {kind}({created}).fit({', '.join(fitted)})"
    return "\n".join(["import ripieno as rp", "", *comments, call])


def _is_default(called: Any, name: str, value: Any) -> bool:
    default = called.parameters[name].default
    return default is value or (isinstance(value, int | float | str | bool | tuple) and bool(default == value))


def _code(name: str, value: Any, named: dict[str, Any]) -> str:
    """Return a literal, or else the name, which then is a key of `named`."""
    literal = _literal(value)
    if literal is None:
        named[name] = value
    return name if literal is None else literal


def _literal(value: Any) -> str | None:
    if isinstance(value, Path):
        return repr(str(value))
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (str, int, float, bool):
        return repr(value)
    if is_dataclass(value) and type(value).__name__ in _FILES:
        # The first parameter is the source of the data.
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        changed = [each.name for each in fields(value) if each.name != "source" and given[each.name] != _default(each)]
        texts = [_literal(given["source"]), *(_keyword(name, given[name]) for name in changed)]
        return None if None in texts else f"rp.input.{type(value).__name__}({', '.join(map(str, texts))})"
    if type(value).__name__ == "Graph" and getattr(value, "arguments", None):
        source, *others = (
            _literal(each) if name == "source" else _keyword(name, each) for name, each in value.arguments.items()
        )
        return None if None in (source, *others) else f"rp.Graph({', '.join(map(str, [source, *others]))})"
    if type(value) in (list, tuple) and len(value) <= MAX_LENGTH:
        inside = [_literal(each) for each in value]
        if None in inside:
            return None
        joined = ", ".join(map(str, inside))
        return f"[{joined}]" if isinstance(value, list) else f"({joined}{',' if len(inside) == 1 else ''})"
    if isinstance(value, dict) and len(value) <= MAX_LENGTH:
        pairs = [(_literal(key), _literal(each)) for key, each in value.items()]
        is_literal = all(None not in pair for pair in pairs)
        return f"{{{', '.join(f'{key}: {each}' for key, each in pairs)}}}" if is_literal else None
    return None


def _keyword(name: str, value: Any) -> str | None:
    literal = _literal(value)
    return None if literal is None else f"{name}={literal}"


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    name = type(value).__name__
    if isinstance(shape, tuple):
        return f"{name} of shape {shape}"
    return f"{name} of length {len(value)}" if hasattr(value, "__len__") else name
