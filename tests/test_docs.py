"""The documentation is correct: examples run, links resolve, and lists are complete.

The examples themselves are collected from the pages by ``conftest.py``.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
from pathlib import Path

import pytest
from sybil.document import Document

import hyperplane
from hyperplane.clusters.registry import ENGINES
from scripts import pages
from scripts.examples import PAGE_PARSERS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})(?P<info>.*)$", re.MULTILINE)
EXCUSE = re.compile(r'<!-- skip: next "(?P<reason>[^"]{5,})" -->\n+\Z')
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: Blocks that are not code: output and text diagrams.
OUTPUT = "text"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(text: str) -> list[tuple[int, str]]:
    """Position and info string of each fenced block."""
    found, inside = [], ""
    for match in FENCE.finditer(text):
        if not inside:
            found.append((match.start(), match["info"].strip()))
            inside = match["mark"]
        elif match["mark"].startswith(inside) and not match["info"].strip():
            inside = ""
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_code_block_runs_or_has_a_reason_to_skip(page):
    text = page.read_text(encoding="utf-8")
    document = Document.parse(str(page), *PAGE_PARSERS)
    regions = [(example.region.start, example.region.end) for example in document.examples()]
    for position, info in fences(text):
        # Directives such as {literalinclude} are checked by Sphinx.
        if info == OUTPUT or info.startswith("{"):
            continue
        line = text.count("\n", 0, position) + 1
        end = text.index("\n" + text[position : position + 3], position)
        runs = any(position <= start and stop <= end + 4 for start, stop in regions)
        assert runs or EXCUSE.search(text[:position]), f"{page}:{line}: {info or 'no language'}"


def test_a_code_block_that_is_not_run_fails_the_check(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```toml\nx = 1\n```\n")
    with pytest.raises(AssertionError, match="toml"):
        test_every_code_block_runs_or_has_a_reason_to_skip(page)


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("C*.md")], ids=name_of)
def test_relative_links_have_existing_targets(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page}: {target}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page: those that GitHub and Sphinx create from headings, and named ones."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def test_every_page_is_linked_from_the_front_page():
    reached, todo = set(), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        links = LINK.findall(page.read_text(encoding="utf-8"))
        linked = [(page.parent / link.partition("#")[0]).resolve() for link in links]
        todo += [
            file for file in [*linked, *toctree(page)] if file in PAGES and file not in reached
        ]
    assert set(PAGES) - reached == {README}


def test_the_page_on_watching_work_links_all_pages_of_its_group():
    index = (ROOT / "docs" / "how-to" / "index.md").read_text(encoding="utf-8")
    group = index.partition(":caption: Watch work\n")[2].partition("```")[0]
    pages = {f"{name}.md" for name in re.findall(r"^([\w-]+)$", group, re.MULTILINE)}
    assert len(pages) > 5
    text = (ROOT / "docs" / "how-to" / "watch-work.md").read_text(encoding="utf-8")
    links = {link.partition("#")[0] for link in LINK.findall(text)}
    assert pages - {"watch-work.md"} <= links
    assert "../gallery.md" in links


def test_the_front_page_begins_with_a_session_and_links_the_four_kinds_of_pages():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    beginning = index.partition("\n## ")[0]
    assert beginning.index("size_cluster(") < beginning.index("initialize_cluster(")
    assert {"tutorial/first-cluster.md", "how-to/index.md", "reference/index.md",
            "explanation/index.md", "gallery.md"} <= set(LINK.findall(beginning))  # fmt: skip
    assert ":alt: " in beginning
    assert len(beginning.splitlines()) < 60  # one screen


def test_the_front_pages_list_every_notebook_in_the_order_of_their_numbers():
    names = sorted(file.name for file in (ROOT / "notebooks").glob("*.ipynb"))
    numbers = [int(name[:2]) for name in names]
    assert numbers == list(range(1, len(names) + 1))
    assert re.findall(r"\(notebooks/([\w.]+)\)", README.read_text(encoding="utf-8")) == names
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"`notebooks/([\w.]+)`", index) == names


def test_the_front_page_names_every_engine():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert set(ENGINES.built_in) <= set(re.findall(r"`([\w:]+)`", index))
    assert "planned" not in index


def toctree(page: Path) -> list[Path]:
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = [line for block in blocks for line in block.splitlines()]
    return [
        (page.parent / f"{name}.md").resolve()
        for name in names
        if name and not name.startswith(":")
    ]


#: Public modules; ``hyperplane_gpu`` has one of them under another name.
MODULES = (
    "hyperplane", "hyperplane.array", "hyperplane.bag", "hyperplane.dataframe", "hyperplane.errors",
    "hyperplane.history", "hyperplane.jobs", "hyperplane.ml", "hyperplane.notebook_common",
    "hyperplane.orca", "hyperplane.ray_common", "hyperplane.reports", "hyperplane.spark",
    "hyperplane.storage", "hyperplane.utils",
)  # fmt: skip
#: Public methods that are not for new programs: a former name, and one that only raises an error.
NOT_FOR_NEW_PROGRAMS = {("Job", "place"), ("Estimator", "from_graph")}
_DIRECTIVE = re.compile(
    r"^\.\. (?P<kind>auto\w+|py:\w+|currentmodule):: +(?P<name>[\w.]+).*\n"
    r"(?P<more>(?: +\S.*\n)*)",
    re.MULTILINE,
)


def _documented() -> dict[str, str]:
    """Full names in the reference, and the names after ``:members:`` of each."""
    found = {}
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        module = ""
        for match in _DIRECTIVE.finditer(page.read_text(encoding="utf-8")):
            name = match["name"]
            if match["kind"] == "currentmodule":
                module = name
                continue
            further = re.findall(r"^ {17}(\w+)\(", match["more"], re.MULTILINE)
            members = re.search(r":members:((?:.*\n)(?: {6}.*\n)*)", match["more"])
            for each in (name, *further):
                full = each if each.startswith("hyperplane") else f"{module}.{each}"
                found[full] = (members[1].strip() or "all") if members else ""
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    public = importlib.import_module(module).__all__
    names = {f"{module}.{name}" for name in public}
    # Names that users import from another module, such as the errors that hyperplane itself has.
    elsewhere = {f"hyperplane.{name}" for name in public if name in hyperplane.__all__}
    missing = {
        name
        for name in names - _documented().keys()
        if f"hyperplane.{name.rpartition('.')[2]}" not in elsewhere & _documented().keys()
    }
    assert not missing


def _own_members(documented: type) -> set[str]:
    kinds = (property, classmethod, staticmethod)
    return {
        name
        for name, value in vars(documented).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    }


def test_every_public_method_is_in_the_reference():
    shown: dict[type, set[str]] = {}
    for name, listed in _documented().items():
        module, _, short = name.rpartition(".")
        thing = getattr(importlib.import_module(module), short, None) if module in MODULES else None
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            members = _own_members(thing) if listed == "all" else re.findall(r"\w+", listed)
            shown.setdefault(thing, set()).update(members)
    missing = [
        (thing.__name__, name)
        for thing, names in shown.items()
        for name in _own_members(thing) - names
    ]
    assert set(missing) <= NOT_FOR_NEW_PROGRAMS


@pytest.mark.parametrize(
    "module",
    ["clusters.engine", "clusters.framework", "formats.base", "jobs.exporters.base",
     "jobs.runners.base"],
)  # fmt: skip
def test_every_protocol_for_other_packages_is_in_the_reference(module):
    loaded = importlib.import_module(f"hyperplane.{module}")
    protocols = {
        f"{loaded.__name__}.{name}"
        for name, value in vars(loaded).items()
        if getattr(value, "_is_protocol", False) and value.__module__ == loaded.__name__
    }
    assert protocols
    assert protocols <= _documented().keys()


@pytest.mark.parametrize("page", pages.GENERATED)
def test_generated_pages_are_up_to_date(page):
    text = (pages.DOCS / page).read_text(encoding="utf-8")
    assert text == pages.with_generated(page), "run: make pages"


def test_the_picture_of_a_forecast_is_up_to_date():
    drawn = (pages.STATIC / "forecast.svg").read_text(encoding="utf-8")
    assert drawn == pages.forecast_svg() + "\n", "run: make pages"


@pytest.mark.process
def test_the_terminal_picture_shows_what_the_command_prints():
    drawn = (pages.STATIC / "size.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text[^>]*>(.*?)</text>", drawn, re.DOTALL)
    shown = html.unescape(" ".join(texts)).replace("\xa0", " ").split()
    printed = re.sub(r"\x1b\[[0-9;]*m", "", pages.terminal_text())
    command = ["hyperplane", "$", "hyperplane", *pages.COMMAND]
    assert shown == [*command, *printed.split()], "run: make pages"


def test_a_plain_pytest_runs_the_examples(pytestconfig):
    covered = {path.rstrip("/") for path in pytestconfig.getini("testpaths")}
    assert {"tests", "docs", "hyperplane", "README.md"} <= covered


def test_the_configuration_page_includes_every_file():
    page = (pages.DOCS / "reference" / "config.md").read_text(encoding="utf-8")
    files = {file.name for file in (ROOT / "config").glob("*.yaml")}
    assert files == set(re.findall(r"literalinclude\} \.\./\.\./config/(\S+)", page))
