"""Feature extraction: pictures become HOG vectors, equal for any number of workers, with the patch of each row."""

from __future__ import annotations

import numpy as np
import pytest
import ripieno as rp
from PIL import Image
from ripieno.features import HogOptions, demo_images, extract, find_patches, find_pictures, hog_vectors
from ripieno.input.matrix import open_source


@pytest.fixture
def photos(tmp_path):
    """Return a folder of two pictures in nested folders, one too small for a patch, and a file of another kind."""
    folder = tmp_path / "photos"
    (folder / "more photos").mkdir(parents=True)
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (70, 100, 3), np.uint8)).save(folder / "a.png")
    Image.fromarray(random.integers(0, 256, (64, 33), np.uint8)).save(folder / "more photos" / "b c.jpg")
    Image.new("L", (31, 200)).save(folder / "thin.bmp")
    (folder / "notes.txt").write_text("no picture")
    return folder


def test_a_patch_has_512_values_between_0_and_1():
    gray = demo_images()[0].gray()

    vectors = hog_vectors(gray, [(0, 0), (100, 200)], HogOptions())

    assert vectors.shape == (2, 512) and vectors.dtype == np.float32
    assert vectors.min() >= 0 and vectors.max() <= 1


def test_vectors_show_the_direction_of_edges_and_shrink_with_contrast():
    stripes = np.tile(np.float32([0, 0, 1, 1]), (32, 8))
    options = HogOptions()
    vertical, horizontal, faint, flat = (
        hog_vectors(gray, [(0, 0)], options).reshape(64, 8)[10]
        for gray in (stripes, np.ascontiguousarray(stripes.T), stripes * np.float32(0.002), stripes * 0)
    )

    assert vertical.argmax() != horizontal.argmax()
    assert vertical.max() > 0.95 and faint.max() < 0.2
    assert not flat.any()


def test_every_whole_patch_of_every_picture_is_a_row_in_order(photos, tmp_path):
    pictures = find_pictures([photos])
    done = []

    written = extract(pictures, tmp_path / "v.npy", on_progress=lambda count, total: done.append((count, total)))

    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (written.row_count, 512) == (2 * 3 + 2 * 1, 512)
    assert [name.rpartition("/")[2] for name in written.too_small] == ["thin.bmp"]
    assert sum(count for count, _ in done) == 8 and {total for _, total in done} == {8}
    patches = find_patches(open_source(tmp_path / "v.npy"))
    gray = {picture.name: picture.gray() for picture in pictures}
    for number, vector in enumerate(vectors):
        name, row, column = patches.locate(number)
        np.testing.assert_array_equal(hog_vectors(gray[name], [(row, column)], HogOptions())[0], vector)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_does_not_change_the_file(photos, tmp_path, workers):
    pictures = find_pictures([photos])
    extract(pictures, tmp_path / "alone.npy")

    extract(pictures, tmp_path / "shared.npy", workers=workers)

    assert (tmp_path / "shared.npy").read_bytes() == (tmp_path / "alone.npy").read_bytes()


def test_bytes_are_the_values_times_255(photos, tmp_path):
    pictures = find_pictures([photos])
    extract(pictures, tmp_path / "floats.npy")

    extract(pictures, tmp_path / "bytes.npy", options=HogOptions(dtype="uint8"))

    vectors = np.load(tmp_path / "bytes.npy")
    assert vectors.dtype == np.uint8
    np.testing.assert_array_equal(vectors, np.rint(np.load(tmp_path / "floats.npy") * 255))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_text_lines_contain_picture_row_and_column_and_round_trip(photos, tmp_path, dtype):
    pictures, options = find_pictures([photos]), HogOptions(dtype=dtype)
    extract(pictures, tmp_path / "v.npy", options=options)

    extract(pictures, tmp_path / "v.txt", options=options)

    dataset = open_source(tmp_path / "v.txt")
    points = dataset.read_share(0, 1).points
    assert points.dtype == dtype
    np.testing.assert_array_equal(points, np.load(tmp_path / "v.npy"))
    assert len((tmp_path / "v.txt").read_text().splitlines()[0].split(" ")) == 3 + 512
    expected, found = find_patches(open_source(tmp_path / "v.npy")), find_patches(dataset)
    assert [found.locate(at) for at in range(8)] == [expected.locate(at) for at in range(8)]


def test_demo_photographs_need_no_download():
    pictures = demo_images()

    assert {"demo:china", "demo:flower", "demo:astronaut", "demo:coffee"} <= {each.name for each in pictures}
    assert all(each.gray().shape == (each.height, each.width) for each in pictures)
    assert find_pictures(["demo:china"]) == pictures[:1]


def test_a_damaged_picture_is_named_and_nothing_is_left(photos, tmp_path):
    whole = (photos / "a.png").read_bytes()
    (photos / "damaged.png").write_bytes(whole[: len(whole) // 2])
    before = sorted(tmp_path.iterdir())

    for workers in (1, 2):
        with pytest.raises(rp.InputError, match=r"damaged\.png is damaged"):
            extract(find_pictures([photos]), tmp_path / "v.npy", workers=workers)

    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("notes.txt", r"notes\.txt is not a readable picture"),
        ("nothing.png", r"nothing\.png does not exist"),
        ("*.webp", "no picture matches"),
        ("more photos/../empty", "there is no picture in this folder"),
    ],
)
def test_invalid_picture_is_reported(photos, source, message):
    (photos / "empty").mkdir()

    with pytest.raises(rp.InputError, match=message):
        find_pictures([photos / source])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 30}, "patch=30"),
        ({"stride": 0}, "stride=0"),
        ({"dtype": "int8"}, "'int8'"),
        ({"patch": 0}, "patch=0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(rp.InputError, match=message):
        HogOptions(**options)


def test_an_index_that_does_not_fit_is_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.ones((3, 4)))
    index = tmp_path / "v.patches.csv"

    index.write_text("picture,row,col\np,0,0\n")
    with pytest.raises(rp.InputError, match="1 entries for 3 rows"):
        find_patches(open_source(tmp_path / "v.npy"))
    index.write_text("picture,line\np,0\n")
    with pytest.raises(rp.InputError, match="not an index of patches"):
        find_patches(open_source(tmp_path / "v.npy"))
