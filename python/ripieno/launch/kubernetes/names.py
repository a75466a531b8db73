"""Provide checks of names, quantities, labels, variables and scripts in a manifest against the rules of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePosixPath

from ripieno.errors import InputError

#: Maximum length of a DNS label (RFC 1123), such as a host name.
LABEL_MAX = 63
SUBDOMAIN_MAX = 253
#: Maximum number of pods of an Indexed Job.
PODS_MAX = 100_000
#: Maximum size of a ConfigMap.
CONFIG_MAP_BYTES_MAX = 1 << 20

_WORD = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_WORD)
_SUBDOMAIN = re.compile(rf"{_WORD}(\.{_WORD})*")
_KEY = re.compile(rf"({_WORD}(\.{_WORD})*/)?[A-Za-z0-9]([-\w.]{{0,61}}[A-Za-z0-9])?", re.ASCII)
_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_VARIABLE = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
_FILE = re.compile(r"[-._A-Za-z0-9]+")
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(m|[kMGTPE]|[KMGTPE]i)?", re.ASCII)


def check_label(option: str, name: str) -> None:
    """Check a name that is part of host names; Services require a letter first (RFC 1035)."""
    letter = option != "--name" or name[:1].isalpha()
    if not _LABEL.fullmatch(name) or not letter:
        first = "a letter first" if option == "--name" else "no hyphen first"
        raise InputError(
            f"{option}={name!r}: expected lower-case letters, digits and hyphens, {first} and no hyphen last"
        )
    check_length(option, name, name)


def check_length(option: str, name: str, longest: str) -> None:
    """Check that the longest name derived from `name` is a DNS label."""
    if len(longest) > LABEL_MAX:
        made = "" if longest == name else f" makes the name of a pod, {longest}, which"
        raise InputError(f"{option}={name!r}{made} has {len(longest)} characters; expected at most {LABEL_MAX}")


def check_image(option: str, image: str) -> None:
    """Check the name of an image. Kubernetes only rejects surrounding spaces; the node checks the rest."""
    if not image or image != image.strip():
        raise InputError(f"{option}={image!r}: expected the name of an image")


def check_subdomain(option: str, name: str) -> None:
    """Check the name of a Secret or a claim."""
    if not _SUBDOMAIN.fullmatch(name) or len(name) > SUBDOMAIN_MAX:
        raise InputError(
            f"{option}={name!r}: expected at most {SUBDOMAIN_MAX} lower-case letters, digits, hyphens and dots, "
            "words beginning and ending with a letter or digit"
        )


def check_claims(claims: Mapping[str, str], scripts: str) -> None:
    """Check the names of claims, and that their mount paths do not overlap the folder of the script."""
    places = [PurePosixPath(scripts)]
    for claim, path in claims.items():
        check_subdomain("--claim", claim)
        place = PurePosixPath(path)
        if not place.is_absolute() or ":" in path:
            raise InputError(f"--claim={claim}:{path}: expected NAME:PATH with an absolute path without colons")
        if place in places:
            raise InputError(f"--claim={claim}:{path}: something else is mounted there")
        places.append(place)


def check_label_key(option: str, key: str) -> None:
    """Check the name of a label, such as ``topology.kubernetes.io/zone``."""
    if not _KEY.fullmatch(key):
        raise InputError(f"{option}={key!r}: expected the name of a label, such as topology.kubernetes.io/zone")


def check_label_value(option: str, key: str, value: str) -> None:
    """Check the value of a label."""
    if not _VALUE.fullmatch(value):
        raise InputError(
            f"{option}={key}={value}: expected at most {LABEL_MAX} letters, digits, hyphens, dots and underscores"
        )


def check_quantity(option: str, quantity: str) -> None:
    """Check an amount of CPU or memory."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None or not Decimal(found[1]):
        raise InputError(f"{option}={quantity!r}: expected an amount as Kubernetes writes it, such as 2, 500m or 4Gi")


def check_variables(environment: Mapping[str, str], own: frozenset[str]) -> None:
    """Check that the caller's variables have valid names and do not replace the variables of this package."""
    for name in environment:
        if name in own:
            raise InputError(f"--env={name}: this command sets that variable, which ranks need to join")
        if not _VARIABLE.fullmatch(name):
            raise InputError(f"--env={name!r}: expected a name of letters, digits, underscores, dots and hyphens")


def check_number(option: str, number: int | None, largest: int | None) -> None:
    """Check that a number, if given, is at least 1 and at most `largest`."""
    if number is not None and not 1 <= number <= (largest or number):
        raise InputError(f"{option}={number}: expected " + (">= 1" if largest is None else f"1 to {largest}"))


def check_script(name: str, text: str) -> None:
    """Check the name and size of a script that is stored in a ConfigMap."""
    if not _FILE.fullmatch(name):
        raise InputError(
            f"{name!r}: the name of a script that comes with the manifest may have letters, digits, hyphens, dots and "
            "underscores only; rename it, or put it into the image and use --script-in-image"
        )
    size = len(text.encode())
    if size > CONFIG_MAP_BYTES_MAX:
        raise InputError(
            f"{name} has {size} bytes, and a script in a manifest may have at most {CONFIG_MAP_BYTES_MAX} (a "
            "ConfigMap): put it into the image and use --script-in-image"
        )
