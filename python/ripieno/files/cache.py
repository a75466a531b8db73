"""Provide the folder of stored measurements, and names of files in it from a digest of a cluster."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return the directory of stored measurements: under XDG_CACHE_HOME, or ~/.cache."""
    described = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(described) if Path(described).is_absolute() else Path("~/.cache").expanduser()
    return folder / "ripieno"


def stored_path(kind: str, key: Any) -> Path:
    """Return the path of a measurement of this kind; `key` is a JSON value that identifies the cluster."""
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return cache_folder() / kind / f"{digest[:16]}.json"
