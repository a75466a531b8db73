"""The supervisor in simulated worlds: one verdict, the right culprit, in bounded time, and no job in a half state.

To replay failed seeds, run ``RIPIENO_WORLDS=17..18 pytest`` with this file.
"""

from __future__ import annotations

import os

from supervised_worlds import World


def seeds(default: str) -> range:
    first, _, end = os.environ.get("RIPIENO_WORLDS", default).partition("..")
    return range(int(first), int(end))


def test_simulated_worlds_obey_the_laws_of_supervision():
    for seed in seeds("0..2000"):
        try:
            World(seed).check()
        except AssertionError as error:
            error.add_note(f"in the world of seed {seed}")
            raise
