"""The command `ripieno features`: feature vectors of pictures."""

from __future__ import annotations

from pathlib import Path

import click

from ripieno.cli.options import LocalPath, counted_workers, dashboard_option, overwrite_option, quiet_option
from ripieno.features import HogOptions
from ripieno.files.results import check_results
from ripieno.host import usable_cores

NAMED_SMALL_PICTURES = 3


@click.command("features")
@click.argument("pictures", nargs=-1)
@click.option(
    "-o",
    "--out",
    type=LocalPath(),
    required=True,
    help="File to write: .npy, or .txt for lines of text.",
)
@click.option(
    "--patch", metavar="PIXELS", default=HogOptions.patch, show_default=True, help="Side of a patch in pixels."
)
@click.option(
    "--stride", type=int, metavar="PIXELS", help="Pixels from one patch to the next. Default: the side of a patch."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "uint8"]),
    default=HogOptions.dtype,
    show_default=True,
    help="Type of the values; uint8 takes a quarter of the space.",
)
@click.option(
    "--contrast-floor",
    metavar="NUMBER",
    default=HogOptions.contrast_floor,
    show_default=True,
    help="Gradients below this value have less weight; brightness ranges from 0 to 1.",
)
@click.option(
    "--format",
    type=click.Choice(["npy", "t12"]),
    help='"npy", or "t12" for lines of "picture row col f1 … f512". Default: from the name of the file.',
)
@counted_workers("Worker processes. Default: one per core.")
@click.option("--demo", is_flag=True, help="Use the photographs in scikit-learn and scikit-image.")
@overwrite_option
@dashboard_option
@quiet_option
def features_command(
    pictures: tuple[str, ...],
    out: Path,
    patch: int,
    stride: int | None,
    dtype: str,
    contrast_floor: float,
    format: str | None,
    workers: int | None,
    demo: bool,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Cut PICTURES into patches and describe each by a HOG vector, of 512 values for patches of 32 pixels.

    PICTURES are files, globs or folders (searched recursively) in any format that Pillow opens. For a .npy file, a
    .patches.csv lists the picture, pixel row and pixel column of each vector.

    \b
    Example:
      ripieno features photos/ --out vectors.npy
    """
    from rich.console import Console

    from ripieno.cli.progress import patch_progress
    from ripieno.features import HogOptions, demo_images, extract, find_pictures
    from ripieno.features.extraction import index_of

    if bool(pictures) == demo:
        raise click.UsageError("expected either pictures or --demo")
    check_results({"--out": out, "its index": index_of(out, format)}, pictures, overwrite=overwrite)
    options = HogOptions(
        patch=patch, stride=patch if stride is None else stride, contrast_floor=contrast_floor, dtype=dtype
    )
    found = demo_images() if demo else find_pictures(pictures)
    console = Console(stderr=True)
    with patch_progress(console, quiet=quiet) as progress:
        task = progress.add_task("patches")
        written = extract(
            found,
            out,
            options=options,
            format=format,
            workers=workers or usable_cores(),
            on_progress=lambda done, total: progress.update(task, advance=done, total=total),
        )
    if written.too_small:
        names = ", ".join(written.too_small[:NAMED_SMALL_PICTURES])
        rest = len(written.too_small) - NAMED_SMALL_PICTURES
        more = f" and {rest} more" if rest > 0 else ""
        console.print(f"skipped, smaller than a patch: {names}{more}", highlight=False)
    console.print(
        f"{written.row_count:,} vectors of {written.column_count} values from {len(found):,} pictures", highlight=False
    )
    click.echo(out)
