"""The link of a dashboard: the address by which its user's browser reaches it, also through proxies."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ripieno.errors import InputError

#: What the link is made by, if it is not that of the listener.
TEMPLATE_VARIABLE = "RIPIENO_DASHBOARD_LINK"
#: Where to listen: a host, a port, or both.
ADDRESS_VARIABLE = "RIPIENO_DASHBOARD_ADDRESS"
#: What JupyterHub sets: the path under which jupyter-server-proxy passes requests on.
PREFIX_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"
LOOPBACK = "127.0.0.1"


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Where to listen: this machine alone and a free port, unless the environment says otherwise.

    Raises
    ------
    InputError
        What it says is no address.
    """
    text = environment.get(ADDRESS_VARIABLE, "").strip()
    host, _, port = text.rpartition(":") if ":" in text else ("", "", text) if text.isdigit() else (text, "", "")
    host, port = host.strip("[]") or LOOPBACK, port or "0"
    if not port.isdigit() or int(port) >= 1 << 16:
        raise InputError(f"{ADDRESS_VARIABLE}={text}: expected a host, a port, or host:port, such as 0.0.0.0:8787")
    return host, int(port)


def link(host: str, port: int, token: str, environment: Mapping[str, str] = os.environ) -> str:
    """By which the page is opened.

    Raises
    ------
    InputError
        The template names something that is not there.
    """
    template = environment.get(TEMPLATE_VARIABLE)
    if template:
        known = {**environment, "host": host, "port": str(port), "token": token}
        try:
            made = template.format_map(known)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise InputError(
                f"{TEMPLATE_VARIABLE}={template}: {error} is not known: expected {{host}}, {{port}}, {{token}} and "
                "names of environment variables"
            ) from None
        return made if "{token}" in template else f"{made.rstrip('/')}/{token}/"
    prefix = environment.get(PREFIX_VARIABLE)
    if prefix:
        return f"{prefix.rstrip('/')}/proxy/{port}/{token}/"
    shown = LOOPBACK if host in ("0.0.0.0", "::", "") else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/{token}/"
