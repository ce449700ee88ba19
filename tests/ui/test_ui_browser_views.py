"""The page in Chromium: access, names for screen readers, and many runs and steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from artifact_cases import PNG, add_job, notebook, save
from browser import Browser, find_browser
from job_cases import bash
from services import need
from ui_server import UiServer

from hyperplane.history import PlanSummary, RunRecord
from hyperplane.history.run_record import new_run_name
from hyperplane.history.store import write_run
from hyperplane.jobs.store.job_records import DONE, FAILED, Attempt
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

NASTY = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>"
RUNS, STEPS, DAY = 1_000, 100, 86_400.0
#: Roles of elements that a screen reader announces with their names.
NAMED = {
    "button", "checkbox", "combobox", "DisclosureTriangle", "Figure", "form", "graphics-document",
    "group", "heading", "img", "image", "link", "navigation", "region", "table", "textbox",
}  # fmt: skip
#: Of these, roles that have no name unless the page gives one, which it need not.
OPTIONAL = {"form", "group", "table"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    need("Chromium is not installed", find_browser() is not None)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def paths(server: UiServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Views by names; the store has a thousand runs, and one with a hundred steps."""
    folder = tmp_path_factory.mktemp("work")
    store = open_store()
    first = add_job(folder, submitted=2e9 - RUNS * DAY, name=NASTY, reason=NASTY, status=FAILED)
    for number in range(1, RUNS):
        at = 2e9 - (RUNS - number) * DAY
        times = {"submitted": at, "started": at + 1, "ended": at + 60 + number % 7}
        store.add(replace(first, id=f"{number:08}-runs", name="nightly", status=DONE, **times))
    names = [f"step-{number}" for number in range(STEPS)]
    steps = [
        bash(name, "true", depends_on=names[max(0, place - 3) : place][:2])
        for place, name in enumerate(names)
    ]
    wide = add_job(folder, *steps, submitted=2e9, started=2e9, ended=2e9 + 900)
    for place, name in enumerate(names):
        began = wide.started + 8 * place
        store.save_attempt(Attempt(wide.id, name, -1, 1, DONE, began, began + 8))
    save(first, "plot.png", PNG)
    save(first, "a.ipynb", notebook({"output_type": "stream", "name": "stdout", "text": "one"}))
    record = RunRecord(
        name=new_run_name("flights", 1.9e9), cluster="flights", started=1.9e9, ended=1.9e9 + 100,
        exit_reason=NASTY, plan=PlanSummary(engine="local", framework="dask"),
    )  # fmt: skip
    write_run(record)
    return {
        "overview": "/",
        "clusters": "/clusters",
        "other clusters": "/other-clusters",
        "jobs": "/jobs",
        "runs of a pipeline": "/jobs?pipeline=saving",
        "a page of jobs": "/jobs?page=7",
        "failed job": f"/jobs/{first.id}",
        "job of many steps": f"/jobs/{wide.id}",
        "artifacts": f"/jobs/{first.id}/artifacts",
        "report of a job": f"/jobs/{first.id}/report",
        "records": "/records",
        "record": f"/records/{record.name}",
        "report of a record": f"/records/{record.name}/report",
        "schedules": "/schedules",
        "pools": "/pools",
        "size": "/size?data=100GB&operation=groupby",
        "not found": "/jobs/none",
    }


def test_a_browser_with_a_wrong_token_or_none_sees_nothing(
    browser: Browser, server: UiServer, paths: dict[str, str]
) -> None:
    browser.call("Network.clearBrowserCookies")
    heading = "document.querySelector('h1').textContent"
    codes = "performance.getEntriesByType('navigation')[0].responseStatus"
    for path, title, code in (
        ("/?token=wrong", "Refused", 403),
        (f"/?token={server.token[:-1]}", "Refused", 403),
        (paths["failed job"], "No access", 401),
        ("/", "No access", 401),
    ):
        browser.open(server.origin + path)
        assert (browser.evaluate(heading), browser.evaluate(codes)) == (title, code)
        text = browser.evaluate("document.documentElement.outerHTML")
        assert "saving" not in text
        assert server.token not in text
    # The other token has not ended the access of the address that was printed.
    browser.open(server.address)
    assert browser.evaluate(heading) == "Overview"
    browser.open(f"{server.origin}/?token=wrong")
    assert browser.evaluate(heading) == "Refused"
    browser.open(f"{server.origin}/jobs")
    assert browser.evaluate(heading) == "Jobs"
    # Chromium itself reports answers of an error.
    assert [each for each in browser.problems if "status of 40" not in each] == []
    browser.problems.clear()


def read_tree(browser: Browser) -> list[dict[str, Any]]:
    """Return what a screen reader gets of a page: roles, names and levels of headings."""
    nodes = []
    for node in browser.call("Accessibility.getFullAXTree")["nodes"]:
        if not node.get("ignored"):
            properties = {each["name"]: each["value"].get("value") for each in node["properties"]}
            name = node.get("name", {}).get("value", "").strip()
            role = node["role"]["value"]
            nodes.append({"role": role, "name": name, "level": properties.get("level")})
    return nodes


def test_every_view_has_names_and_headings_for_screen_readers(
    browser: Browser, server: UiServer, paths: dict[str, str]
) -> None:
    browser.open(server.address)
    browser.call("Accessibility.enable")
    for view, path in paths.items():
        browser.open(server.origin + path)
        tree = read_tree(browser)
        roles = [node["role"] for node in tree]
        nameless = [node for node in tree if node["role"] in NAMED - OPTIONAL and not node["name"]]
        assert nameless == [], view
        levels = [node["level"] for node in tree if node["role"] == "heading"]
        assert levels.count(1) == 1, view
        assert levels[0] == 1, view
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), view
        assert roles.count("main") == 1, view
        regions = [node["name"] for node in tree if node["role"] == "navigation"]
        assert len(regions) == len({*regions}), view
        assert "report" in view or regions[0] == "Pages", view
        assert browser.evaluate("document.documentElement.lang") == "en", view
        # Each cell of a table has a header: of its row or of its column.
        bare = """[...document.querySelectorAll('table')].filter(table =>
            [...table.rows].some(row => !row.querySelector('th') &&
                !table.querySelector('thead th, tr:first-child > th'))).length"""
        assert browser.evaluate(bare) == 0, view
        ids = browser.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        assert len(ids) == len(set(ids)), view
    assert [each for each in browser.problems if "status of 404" not in each] == []


def test_names_of_jobs_and_records_run_no_script(
    browser: Browser, server: UiServer, paths: dict[str, str]
) -> None:
    browser.open(server.address)
    for view in ("overview", "failed job", "a page of jobs", "artifacts", "record",
                 "report of a job", "report of a record"):  # fmt: skip
        browser.open(server.origin + paths[view])
        made = "document.querySelectorAll('script:not([src]), [onerror]').length"
        assert browser.evaluate(made) == 0, view
    browser.open(server.origin + paths["failed job"])
    assert NASTY in browser.evaluate("document.querySelector('table.facts').textContent")
    assert [each for each in browser.problems if "status of 404" not in each] == []
    own = (server.origin, "data:", "about:")
    assert [each for each in browser.requests if not each.startswith(own)] == []


def test_pages_of_many_runs_and_steps_stay_small(
    browser: Browser, server: UiServer, paths: dict[str, str]
) -> None:
    browser.open(server.address)
    for view, rows, most in (("jobs", 100, 100_000), ("runs of a pipeline", 100, 120_000),
                             ("job of many steps", STEPS, 150_000)):  # fmt: skip
        browser.open(server.origin + paths[view])
        found = browser.evaluate("document.querySelectorAll('table.list:last-of-type tr').length")
        assert found >= rows, view
        size = browser.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize")
        assert size < most, view
        assert browser.evaluate("document.querySelectorAll('*').length") < 6_000, view
    assert browser.evaluate("document.querySelectorAll('.hp-steps g').length") >= STEPS
    browser.open(server.origin + paths["runs of a pipeline"])
    assert browser.evaluate("document.querySelectorAll('.durations rect').length") == 100
    browser.evaluate("document.querySelector('a[rel=next]').click()")
    browser.wait("location.search.includes('page=2') && document.readyState === 'complete'")
    assert "jobs 101 to 200" in browser.evaluate("document.body.textContent")
