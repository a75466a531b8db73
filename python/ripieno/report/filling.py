"""Page templates of reports, rendered with the style that they share with the dashboard."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def fill(template: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Return the rendered template. The time is available as `now`; an undefined name raises an error."""
    pages = _pages(tuple(filters.items()))
    return pages.get_template(template).render(now=datetime.datetime.now().astimezone(), **values)


@functools.lru_cache(maxsize=4)
def _pages(filters: tuple[tuple[str, Callable[..., Any]], ...]) -> Environment:
    """Return the environment with these filters. It keeps compiled templates for later pages."""
    pages = Environment(
        loader=ChoiceLoader([PackageLoader("ripieno.report"), PackageLoader("ripieno.dashboard", "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    pages.filters.update(filters)
    return pages
