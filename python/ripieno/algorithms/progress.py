"""Progress display of a fit, in a notebook, on a terminal, or as lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from itertools import islice
from typing import Any

from ripieno.log import is_notebook

#: Maximum number of measures shown, in order.
MEASURE_COUNT = 3
#: Keys of an event that are not shown as measures.
_HIDDEN_KEYS = ("event", "iteration", "run", "rank", "compute_s", "communication_s")


class Progress:
    """Shows the iterations of a fit in a line that is updated, in a notebook or on a terminal.

    On other output, such as a batch job's log file, it prints a line at most once per interval. Outside notebooks,
    output goes to stderr.

    Parameters
    ----------
    every_s : float
        Minimum seconds between updates of the line. The last iteration is always shown at the end of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> import ripieno as rp
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> model = rp.KMeans(3, random_state=0, on_iteration=rp.Progress()).fit(X)
    """

    def __init__(self, every_s: float = 0.2) -> None:
        self.every_s = every_s
        self._shown_s = 0.0
        self._start_s: float | None = None
        self._display: Any = None
        self._width = 0
        # Latest text that is not shown yet.
        self._pending: str | None = None

    def __repr__(self) -> str:
        return f"Progress(every_s={self.every_s:g})"

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Process an event of an estimator, as the callable of ``on_iteration=``."""
        now = time.monotonic()
        if self._start_s is None or event.get("iteration") == 1:
            self._start_s = now
        if "iteration" in event:
            self._pending = _line(event, now - self._start_s)
            if now - self._shown_s >= self.every_s or event["iteration"] == 1:
                self._shown_s = now
                self._show_pending()

    def done(self) -> None:
        """Show the last iteration at the end of the fit."""
        self._show_pending()
        if self._width:
            sys.stderr.write("\n")
        self._display, self._width, self._start_s = None, 0, None

    def _show_pending(self) -> None:
        text, self._pending = self._pending, None
        if text is not None:
            self._show(text)

    def _show(self, text: str) -> None:
        if is_notebook():
            self._show_in_notebook(text)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def _show_in_notebook(self, text: str) -> None:
        from IPython.display import HTML, display

        line = HTML(f'<code style="white-space:pre-wrap">{escape(text)}</code>')
        if self._display is None:
            self._display = display(line, display_id=True)
        else:
            self._display.update(line)

    def __deepcopy__(self, memo: dict[int, Any]) -> Progress:
        # Cloned estimators get their own display.
        return Progress(self.every_s)


def _line(event: Mapping[str, Any], seconds: float) -> str:
    measures = (
        f"{name.replace('_', ' ')} {value:.6g}"
        for name, value in event.items()
        if name not in _HIDDEN_KEYS and isinstance(value, int | float)
    )
    shown = islice(measures, MEASURE_COUNT)
    return ", ".join([f"iteration {event['iteration']}", *shown, f"{seconds:.1f} s"])
