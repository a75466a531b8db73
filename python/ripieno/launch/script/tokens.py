"""Strength check of tokens chosen by users: an unauthenticated peer can test guesses against messages of ranks."""

from __future__ import annotations

import math
import string

from ripieno.errors import RendezvousError

#: Minimum entropy, computed for characters drawn at random from the smallest usual alphabet that contains them.
BITS_MIN = 128
#: A random token of that many bits has fewer distinct characters only once in a billion times.
DISTINCT_MIN = 6
MAKE_TOKEN = "export RIPIENO_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')"

_ALPHABETS = (
    string.digits,
    string.digits + "abcdef",
    string.ascii_lowercase,
    string.ascii_lowercase + string.digits,
    string.ascii_letters + string.digits,
    string.printable,
)


def check_token(token: str, name: str = "RIPIENO_TOKEN") -> None:
    """Raise `RendezvousError` if a token is short enough to be guessed.

    Parameters
    ----------
    token : str
        The secret of a job.
    name : str
        Name of the variable with the token, for the error.
    """
    alphabet = next((each for each in _ALPHABETS if set(token) <= set(each)), string.printable)
    bits = len(token) * math.log2(len(alphabet))
    if bits < BITS_MIN or len(set(token)) < DISTINCT_MIN:
        known = "it repeats few characters" if bits >= BITS_MIN else f"{len(token)} characters are {bits:.0f} bits"
        raise RendezvousError(
            f"{name} can be guessed: {known}, expected {BITS_MIN} random bits or more: {MAKE_TOKEN}, once before the "
            "ranks start"
        )
