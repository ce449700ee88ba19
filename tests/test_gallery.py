"""The pictures of the documentation: each is made by the script, is small, and has a text."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

pytest.importorskip("PIL")
pytest.importorskip("starlette")

from PIL import Image

from scripts import html_pictures
from scripts.html_pictures import PICTURES, SCREENSHOTS, STATIC

DOCS = STATIC.parent
GALLERY = DOCS / "gallery.md"
FIGURE = re.compile(
    r"^```\{figure\} (?:\.\./)?_static/(?P<file>[\w-]+\.png)\n"
    r"(?P<options>(?::[^\n]*\n)*)\n?(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
#: Pictures that ``make pages`` draws.
DRAWN = {"advice.png"}
_MOST_BYTES = 120_000


def figures(page: Path) -> list[re.Match[str]]:
    return list(FIGURE.finditer(page.read_text(encoding="utf-8")))


def files_of_script() -> set[str]:
    made = {f"{name}-{theme}.png" for name in PICTURES for theme in PICTURES[name].themes}
    return made | {f"{name}-light.png" for name in SCREENSHOTS}


def test_the_gallery_has_each_picture_of_the_script_once():
    shown = [figure["file"] for figure in figures(GALLERY)]
    assert sorted(shown) == sorted(f"{name}-light.png" for name in (*PICTURES, *SCREENSHOTS))


def test_each_picture_of_the_gallery_has_a_text_and_a_page_that_explains_it():
    alternatives = set()
    for figure in figures(GALLERY):
        alternative = re.search(r":alt: (.{30,})", figure["options"])
        assert alternative, figure["file"]
        alternatives.add(alternative[1])
        sentence, link = re.fullmatch(
            r"(.{20,}?\.)\s+\[[^\]]+\]\(([^)#]+)(?:#[\w-]+)?\)\n", figure["text"], re.DOTALL
        ).groups()
        assert sentence
        assert (DOCS / link).is_file(), link
    assert len(alternatives) == len(PICTURES) + len(SCREENSHOTS)


def test_every_page_shows_pictures_that_the_script_makes():
    shown = {figure["file"] for page in DOCS.rglob("*.md") for figure in figures(page)}
    assert shown - DRAWN == files_of_script()
    assert {file.name for file in STATIC.glob("*.png")} == shown


def test_figures_with_a_dark_picture_have_the_same_text_for_both():
    texts: dict[str, set[str]] = {}
    for page in (DOCS / "how-to").glob("*.md"):
        for figure in figures(page):
            name = figure["file"].removesuffix(".png")
            assert ":alt: " in figure["options"], name
            if name.endswith(("-light", "-dark")):
                texts.setdefault(name.rpartition("-")[0], set()).add(name.rpartition("-")[2])
    assert {name for name, themes in texts.items() if themes == {"light", "dark"}} == {
        name for name, picture in PICTURES.items() if picture.has_dark
    }


@pytest.mark.parametrize("name", sorted(files_of_script()))
def test_pictures_can_be_read_and_are_small(name):
    file = STATIC / name
    assert file.stat().st_size < _MOST_BYTES
    with Image.open(file) as picture:
        picture.verify()
        assert min(picture.size) > 50


#: Pictures of results that start a cluster or run a sample of tasks.
_SLOW = ("html-cluster", "html-forecast")


_MARKS = (pytest.mark.slow, pytest.mark.cluster)


@pytest.mark.process  # previews of tables
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=_MARKS if name in _SLOW else ()) for name in PICTURES],
)
def test_pictures_show_example_data_only(name, tmp_path):
    page = html_pictures.make_page(name, tmp_path)
    assert len(page) > 500
    text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    user = Path("~").expanduser().name
    private = {socket.gethostname(), str(tmp_path), str(Path.home()), str(Path.cwd())}
    private |= {f"{user}@", os.environ.get("TMPDIR", "/tmp"), str(DOCS.parent)}
    assert [each for each in private if each in text] == []
    assert 'class="alert"' not in text


def test_the_same_example_data_is_made_each_time(tmp_path):
    pages = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        pages.append(html_pictures.make_page("ui-jobs", folder))
    assert pages[0] == pages[1]
    assert "flights #31" in pages[0]
