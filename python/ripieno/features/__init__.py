"""Convert photographs to vectors: pictures are cut into patches, and gradients describe each patch (HOG).

Source: Zhang, Qiu et al., social image clustering with Twister, section 2.
"""

from ripieno.features.extract import Extraction, extract
from ripieno.features.hog import HogOptions, hog_vectors
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
