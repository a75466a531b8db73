"""Convert photographs to vectors: pictures are cut into patches, and gradients describe each patch (HOG).

Source: Zhang, Qiu et al., social image clustering with Twister, section 2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ripieno.features.hog import HogOptions, hog_vectors

if TYPE_CHECKING:
    from ripieno.features.extraction import Extraction, extract
    from ripieno.features.index import Patches, find_patches
    from ripieno.features.pictures import Picture, demo_images, find_pictures, open_picture

__all__ = [
    "Extraction",
    "HogOptions",
    "Patches",
    "Picture",
    "demo_images",
    "extract",
    "find_patches",
    "find_pictures",
    "hog_vectors",
    "open_picture",
]

# The command line reads the options without the libraries for pictures and tables.
_MODULES = {
    "Extraction": "extraction",
    "Patches": "index",
    "Picture": "pictures",
    "demo_images": "pictures",
    "extract": "extraction",
    "find_patches": "index",
    "find_pictures": "pictures",
    "open_picture": "pictures",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"ripieno.features.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
