"""Provide the default encryption of connections between ranks, read from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from ripieno.errors import InputError

TLS_VARIABLE = "RIPIENO_TLS"


def wants_tls(variables: Mapping[str, str]) -> bool | None:
    """Return the value of RIPIENO_TLS: encrypt all TCP connections, or none; None (not set) means between hosts.

    Raises
    ------
    InputError
        If the variable is neither 0 nor 1.
    """
    text = variables.get(TLS_VARIABLE)
    if not text:
        return None
    if text not in ("0", "1"):
        raise InputError(
            f"{TLS_VARIABLE}={text!r}: expected 1, all connections are encrypted, or 0, none; "
            "not set, those between hosts are"
        )
    return text == "1"
