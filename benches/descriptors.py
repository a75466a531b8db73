"""A generator of any number of 512-byte descriptors of photographs, for clusterings of millions of them.

benches/descriptors.py OUT.npy [--count N] [--seed S]

The photographs come with scikit-learn and scikit-image. A view is a random photograph, randomly scaled and mirrored or
turned. Random patches of 32 x 32 pixels are described by gradients (HOG), as bytes. Descriptors equal the descriptors
of `ripieno.features`, except that gradients at the edge of a patch use the pixels beyond it. A view is therefore
described once, at every pixel, and patches are cut out of the result. The first rows do not depend on the count.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from ripieno.features import HogOptions, demo_images, open_picture
from ripieno.features.hog import BYTE_MAX, CELL_PIXELS, ORIENTATIONS
from ripieno.files.results import new_file

# Twister's problem (Qiu et al.): vectors of 512 bytes.
COUNT = 7_420_000
PATCHES_PER_VIEW = 1024
MIN_SCALE, MAX_SCALE = 0.3, 1.3
OPTIONS = HogOptions(dtype="uint8")

Bytes = NDArray[np.uint8]


@click.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--count", type=click.IntRange(min=1), default=COUNT, show_default=True, help="Descriptors to make.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random numbers.")
def main(out: Path, count: int, seed: int) -> None:
    """Write COUNT descriptors, uint8 of shape (COUNT, 512), to the .npy file OUT."""
    photographs = [_photograph(picture.name) for picture in demo_images()]
    if not photographs:
        raise click.ClickException("scikit-learn and scikit-image are installed without their photographs")
    views = range(0, count, PATCHES_PER_VIEW)
    with new_file(out) as part, click.progressbar(views, label="views of photographs") as shown:
        rows = np.lib.format.open_memmap(part, "w+", np.uint8, (count, OPTIONS.column_count))
        for first in shown:
            random = np.random.default_rng([seed, first // PATCHES_PER_VIEW])
            described = patches(view(photographs, random), random)
            rows[first : first + PATCHES_PER_VIEW] = described[: count - first]
        rows.flush()
    click.echo(out)


def view(photographs: list[Image.Image], random: np.random.Generator) -> NDArray[np.float32]:
    """Return a random view of a photograph: its brightness, 0 to 1, (height, width)."""
    photograph = photographs[random.integers(len(photographs))]
    smallest = max(MIN_SCALE, 2 * OPTIONS.patch / min(photograph.size))
    scale = np.exp(random.uniform(np.log(smallest), np.log(MAX_SCALE)))
    scaled = photograph.resize([round(scale * side) for side in photograph.size], Image.Resampling.LANCZOS)
    gray = np.rot90(np.asarray(scaled, np.float32) / np.float32(255), random.integers(4))
    return np.ascontiguousarray(gray[::-1] if random.integers(2) else gray)


def patches(gray: NDArray[np.float32], random: np.random.Generator) -> Bytes:
    """Return descriptors of random patches of a view, (PATCHES_PER_VIEW, 512)."""
    cells = described_cells(gray)
    corners = random.integers(0, np.subtract(gray.shape, OPTIONS.patch) + 1, size=(PATCHES_PER_VIEW, 2))
    steps = np.arange(0, OPTIONS.patch, CELL_PIXELS)
    rows, columns = corners[:, 0, None, None] + steps[:, None], corners[:, 1, None, None] + steps
    return cells[rows, columns].reshape(PATCHES_PER_VIEW, OPTIONS.column_count)


def described_cells(gray: NDArray[np.float32]) -> Bytes:
    """Return the cell of 4 x 4 pixels at every pixel, (height - 3, width - 3, 8): gradient strength by direction.

    Each is divided by its L2 norm, as in `ripieno.features.hog_vectors`.
    """
    down, right = np.zeros_like(gray), np.zeros_like(gray)
    down[1:-1] = gray[2:] - gray[:-2]
    right[:, 1:-1] = gray[:, 2:] - gray[:, :-2]
    directions = np.rad2deg(np.arctan2(down, right)) % 180
    sector = np.minimum(directions * (ORIENTATIONS / 180), ORIENTATIONS - 1).astype(np.intp)
    strengths = np.zeros((*gray.shape, ORIENTATIONS), np.float32)
    np.put_along_axis(strengths, sector[..., None], np.hypot(down, right)[..., None], axis=2)
    for axis in (0, 1):
        shifted = [
            np.moveaxis(strengths, axis, 0)[at:][: strengths.shape[axis] - CELL_PIXELS + 1] for at in range(CELL_PIXELS)
        ]
        strengths = np.moveaxis(sum(shifted[1:], start=shifted[0]), 0, axis)
    strengths /= CELL_PIXELS**2
    norms = np.sqrt(np.sum(np.square(strengths), axis=2, keepdims=True) + np.float32(OPTIONS.contrast_floor**2))
    return np.rint(strengths * (BYTE_MAX / norms)).astype(np.uint8)


def _photograph(name: str) -> Image.Image:
    with open_picture(name) as image:
        return image.convert("L")


if __name__ == "__main__":
    main()
