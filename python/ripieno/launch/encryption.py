"""Whether connections between ranks are encrypted, where nobody says so in the program."""

from __future__ import annotations

from collections.abc import Mapping

from ripieno.errors import InputError

TLS_VARIABLE = "RIPIENO_TLS"


def wants_tls(variables: Mapping[str, str]) -> bool:
    """What RIPIENO_TLS says; not set is no.

    Raises
    ------
    InputError
        If it is neither 0 nor 1.
    """
    text = variables.get(TLS_VARIABLE) or "0"
    if text not in ("0", "1"):
        raise InputError(f"{TLS_VARIABLE}={text!r}: expected 1, connections are encrypted, or 0")
    return text == "1"
