"""Histograms of oriented gradients (HOG) of square patches, computed by scikit-image.

A patch of 32 x 32 pixels has 8 x 8 cells of 4 x 4 pixels with 8 orientations each: 512 values. Each cell is a separate
block and is divided by its L2 norm, so values lie in 0 .. 1.
Source: Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripieno._extras import needs
from ripieno.errors import InputError

ORIENTATIONS = 8
CELL_PIXELS = 4
#: The constant that scikit-image adds to the norm of a block.
NORM_EPSILON = 1e-5
BYTE_MAX = 255


@dataclass(frozen=True)
class HogOptions:
    """Options for cutting and describing patches.

    Parameters
    ----------
    patch, stride
        Side of a patch, a multiple of 4, and step from one to the next, in pixels.
    contrast_floor
        Mean gradient (of brightness 0 .. 1, per pixel) of a cell with a weight of 70 %; weaker cells have less.
        Each cell is normalized, so without this floor, noise in a uniform area would get full weight.
    dtype
        "float32", or "uint8": values times 255, rounded.
    """

    patch: int = 32
    stride: int = 32
    contrast_floor: float = 0.02
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.patch < CELL_PIXELS or self.patch % CELL_PIXELS:
            raise InputError(f"patch={self.patch}: expected a multiple of {CELL_PIXELS}")
        if self.stride < 1:
            raise InputError(f"stride={self.stride}: expected >= 1")
        if not self.contrast_floor > 0:
            raise InputError(f"contrast_floor={self.contrast_floor}: expected > 0")
        if self.dtype not in ("float32", "uint8"):
            raise InputError(f"dtype={self.dtype!r}: expected float32 or uint8")

    @property
    def column_count(self) -> int:
        """Return the number of values per vector; 512 for patches of 32 pixels."""
        return ORIENTATIONS * (self.patch // CELL_PIXELS) ** 2

    def corners(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return row and column of the upper left pixel of each patch of a picture, row by row."""
        rows, columns = (range(0, side - self.patch + 1, self.stride) for side in (height, width))
        return [(row, column) for row in rows for column in columns]

    def patch_count(self, height: int, width: int) -> int:
        """Return the number of patches of a picture."""
        rows, columns = (max(0, (side - self.patch) // self.stride + 1) for side in (height, width))
        return rows * columns


def hog_vectors(
    gray: NDArray[np.float32], corners: list[tuple[int, int]], options: HogOptions
) -> NDArray[np.float32] | NDArray[np.uint8]:
    """Describe patches of a picture.

    Parameters
    ----------
    gray : (height, width) float32
        Brightness, 0 to 1.
    corners
        Row and column of the upper left pixel of each patch.
    options
        Size of a patch, and dtype of the result.

    Returns
    -------
    ndarray of shape (len(corners), options.column_count), float32 or uint8
    """
    with needs("pictures"):
        from skimage.feature import hog

    # scikit-image's epsilon is fixed. Scaling the picture makes it equal to the contrast floor.
    scaled = gray * np.float32(NORM_EPSILON / options.contrast_floor)
    vectors = np.empty((len(corners), options.column_count), np.float32)
    for number, (row, column) in enumerate(corners):
        vectors[number] = hog(
            scaled[row : row + options.patch, column : column + options.patch],
            orientations=ORIENTATIONS,
            pixels_per_cell=(CELL_PIXELS, CELL_PIXELS),
            cells_per_block=(1, 1),
            block_norm="L2",
        )
    return np.rint(vectors * BYTE_MAX).astype(np.uint8) if options.dtype == "uint8" else vectors
