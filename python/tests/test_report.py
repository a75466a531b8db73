"""The report is one self-contained file."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import ripieno as rp
from PIL import Image
from ripieno.features import demo_images, extract, find_patches
from ripieno.input.matrix import open_source
from ripieno.report import charts, write_report
from ripieno.report.page import figure


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "vectors.npy"
    extract(demo_images()[:2], path)
    return path


@pytest.fixture(scope="module")
def model(vectors):
    return rp.KMeans(8, workers=2, random_state=0).fit(vectors)


@pytest.fixture(scope="module")
def page(vectors, model):
    path = vectors.with_name("report.html")
    patches = find_patches(open_source(vectors))
    parameters = {"n_clusters": 8, "init": "<b>"}
    write_report(
        path, model.report_, parameters=parameters, inertia=model.inertia_, inputs=[str(vectors)], patches=patches
    )
    return path.read_text()


class PageReader(HTMLParser):
    """Collects ids and references of a page; fails on unclosed tags."""

    VOID = frozenset(("meta", "img", "br", "link", "path", "use", "rect", "stop"))

    def __init__(self):
        super().__init__()
        self.ids, self.references, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        self.references += [value for name, value in attributes if name in ("src", "href", "xlink:href", "srcset")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_well_formed_and_has_no_external_links(page):
    reader = PageReader()
    reader.feed(page)

    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert {reference.partition(":")[0] for reference in reader.references if reference[0] != "#"} == {"data"}
    assert "url(http" not in page and "@import" not in page and "<script" not in page


def test_figures_of_the_fit_are_on_the_page(page, model):
    for text in (figure(model.inertia_), "520 rows × 512 columns", "8 clusters", "2 workers", "rank 0", "rank 1"):
        assert text in page
    assert page.count('role="img"') - page.count('class="narrow"') == 4
    threads = sum(len(counted["threads"]) for counted in model.report_.traffic)
    assert page.count("<tr><td>") == 2 * 2 + threads + model.n_iter_
    assert threads >= 2, "each rank has the thread that called its kernels"


def test_charts_take_their_colors_from_the_page(page):
    assert not re.search("#0([1-5])0\\1", page)
    assert "prefers-color-scheme: dark" in page


def test_the_chart_of_cluster_sizes_has_a_bounded_length():
    sizes = np.random.default_rng(0).integers(0, 9, 1_000_000)
    thousand, million = (charts.size_chart(sizes[:count]) for count in (1000, 1_000_000))

    assert len(million) < 1.5 * len(thousand)
    assert "The largest of 1000000 clusters has 8 rows" in million


def test_parameters_are_shown_as_text(page):
    assert "&lt;b&gt;" in page and "<td><b>" not in page


def test_patches_nearest_to_each_centroid_are_shown(page, model):
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)

    assert len(images) == 8
    strip = Image.open(io.BytesIO(base64.b64decode(images[0]))).convert("RGB")
    number = model.report_.exemplar_rows[0][0]
    columns = (640 - 32) // 32 + 1
    picture, at = divmod(int(number), 260)
    row, column = (32 * step for step in divmod(at, columns))
    with Image.open(io.BytesIO(_demo_bytes(picture))) as photo:
        expected = photo.convert("RGB").crop((column, row, column + 32, row + 32))
    np.testing.assert_array_equal(np.asarray(strip.crop((0, 0, 32, 32))), np.asarray(expected))


def test_without_pictures_there_is_no_montage(model, vectors):
    path = vectors.with_name("bare.html")

    write_report(path, model.report_, parameters={}, inertia=model.inertia_, inputs=[])

    assert "largest clusters" not in path.read_text()


def _demo_bytes(at):
    from ripieno.features.pictures import _demo_paths

    return list(_demo_paths().values())[at].read_bytes()
