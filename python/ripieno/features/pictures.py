"""Find and open pictures, including the photographs that scikit-learn and scikit-image contain."""

from __future__ import annotations

import glob
import importlib.util
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ripieno._extras import needs
from ripieno.errors import InputError
from ripieno.files.sources import size_bytes

with needs("pictures"):
    from PIL import Image, UnidentifiedImageError

#: File types to find in folders. A file passed by name may have any type that Pillow opens.
SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".jp2", ".avif", ".ppm", ".pgm", ".pbm")
)

DEMO_PREFIX = "demo:"
DEMO_FILES = {
    "sklearn.datasets": ("images/china.jpg", "images/flower.jpg"),
    "skimage.data": (
        "astronaut.png",
        "brick.png",
        "camera.png",
        "chelsea.png",
        "coffee.png",
        "coins.png",
        "grass.png",
        "gravel.png",
        "motorcycle_left.png",
        "rocket.jpg",
    ),
}

MAX_16_BIT = 65535


@dataclass(frozen=True)
class Picture:
    """A picture with a readable header: its name (a path, or `demo:` and a name) and its size in pixels."""

    name: str
    width: int
    height: int

    def gray(self) -> NDArray[np.float32]:
        """Return the brightness of each pixel, (height, width), 0 to 1.

        Raises
        ------
        InputError
            The picture is damaged.
        """
        with open_picture(self.name) as image:
            try:
                if image.mode.startswith("I;16"):
                    return np.asarray(image, np.float32) / np.float32(MAX_16_BIT)
                return np.asarray(image.convert("L"), np.float32) / np.float32(255)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                raise InputError(f"{self.name} is damaged: {error}") from error


def find_pictures(sources: Iterable[str | os.PathLike[str]]) -> list[Picture]:
    """Find the pictures of files, globs and folders (recursively), in order. Read only their headers.

    Raises
    ------
    InputError
        No file matches, a file is missing, or a file is not a picture.
    """
    names = [name for source in sources for name in _expand(os.fspath(source))]
    return [_measure(name) for name in names]


def demo_images() -> list[Picture]:
    """Return the photographs in the installed packages scikit-learn and scikit-image."""
    return [_measure(name) for name, path in _demo_paths().items() if path.exists()]


def open_picture(name: str) -> Image.Image:
    """Open a picture by name, a path or `demo:` and a name. The caller closes it.

    Raises
    ------
    InputError
        The file is missing, or not a picture.
    """
    path = _demo_paths().get(name, Path(name))
    # Opening a pipe without a writer would block.
    size_bytes(str(path))
    try:
        with warnings.catch_warnings():
            # Large photographs are valid input.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(path)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
        raise InputError(f"{name} is not a readable picture{reason}") from error


def _measure(name: str) -> Picture:
    with open_picture(name) as image:
        return Picture(name, image.width, image.height)


def _demo_paths() -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for module, files in DEMO_FILES.items():
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).parent
        paths |= {f"{DEMO_PREFIX}{Path(file).stem}": folder / file for file in files}
    return paths


def _expand(name: str) -> list[str]:
    if os.path.isdir(name):
        paths = sorted(str(path) for path in Path(name).rglob("*") if path.suffix.lower() in SUFFIXES)
        if not paths:
            raise InputError(f"{name}: there is no picture in this folder")
        return paths
    if os.path.exists(name) or name in _demo_paths() or not glob.has_magic(name):
        return [name]
    paths = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not paths:
        raise InputError(f"{name}: no picture matches")
    return paths
