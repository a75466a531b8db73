"""Montages of picture patches, embedded in the page as PNG."""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ripieno._extras import needs
from ripieno.errors import InputError
from ripieno.features.pictures import open_picture

with needs("pictures"):
    from PIL import Image

TILES_PER_LINE = 6
GAP_PIXELS = 1


@dataclass(frozen=True)
class Tile:
    """A square of a picture: picture name, pixel row, pixel column and side length."""

    picture: str
    row: int
    column: int
    side: int


def cut(tiles: Iterable[Tile]) -> dict[Tile, Image.Image]:
    """Cut tiles out of their pictures, opening each picture once. Tiles of missing pictures are left out."""
    by_picture: defaultdict[str, list[Tile]] = defaultdict(list)
    for tile in tiles:
        by_picture[tile.picture].append(tile)
    images = {}
    for name, wanted in by_picture.items():
        try:
            with open_picture(name) as picture:
                rgb = picture.convert("RGB")
        except (InputError, OSError):
            continue
        for tile in wanted:
            box = (tile.column, tile.row, tile.column + tile.side, tile.row + tile.side)
            images[tile] = rgb.crop(box)
    return images


def strip(images: list[Image.Image]) -> str:
    """Return tiles in lines of six as a data URL. Missing tiles stay transparent."""
    side = images[0].width
    step = side + GAP_PIXELS
    lines = -(-len(images) // TILES_PER_LINE)
    canvas = Image.new("RGBA", (TILES_PER_LINE * step - GAP_PIXELS, lines * step - GAP_PIXELS))
    for at, image in enumerate(images):
        line, place = divmod(at, TILES_PER_LINE)
        canvas.paste(image, (place * step, line * step))
    out = io.BytesIO()
    canvas.save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
