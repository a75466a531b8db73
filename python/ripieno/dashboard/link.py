"""Provide the link of a dashboard: its URL for the user's browser, directly or through proxies."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ripieno.errors import InputError

#: Environment variable with a template of the link, if it differs from the server's address.
TEMPLATE_VARIABLE = "RIPIENO_DASHBOARD_LINK"
#: Environment variable with the address to listen on: a host, a port, or both.
ADDRESS_VARIABLE = "RIPIENO_DASHBOARD_ADDRESS"
#: Set by JupyterHub: the path under which jupyter-server-proxy forwards requests.
PREFIX_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"
LOOPBACK = "127.0.0.1"


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return the address to listen on: by default loopback and a free port.

    Raises
    ------
    InputError
        If the variable contains no address.
    """
    text = environment.get(ADDRESS_VARIABLE, "").strip()
    host, _, port = text.rpartition(":") if ":" in text else ("", "", text) if text.isdigit() else (text, "", "")
    host, port = host.strip("[]") or LOOPBACK, port or "0"
    if not port.isdigit() or int(port) >= 1 << 16:
        raise InputError(f"{ADDRESS_VARIABLE}={text}: expected a host, a port, or host:port, such as 0.0.0.0:8787")
    return host, int(port)


def link(host: str, port: int, token: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the page.

    Raises
    ------
    InputError
        If the template contains an unknown name.
    """
    template = environment.get(TEMPLATE_VARIABLE)
    if template:
        known = {**environment, "host": host, "port": str(port), "token": token}
        try:
            url = template.format_map(known)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise InputError(
                f"{TEMPLATE_VARIABLE}={template}: {error} is not known: expected {{host}}, {{port}}, {{token}} and "
                "names of environment variables"
            ) from None
        return url if "{token}" in template else f"{url.rstrip('/')}/{token}/"
    prefix = environment.get(PREFIX_VARIABLE)
    if prefix:
        return f"{prefix.rstrip('/')}/proxy/{port}/{token}/"
    shown = LOOPBACK if host in ("0.0.0.0", "::", "") else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/{token}/"
