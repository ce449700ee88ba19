"""The page in Chromium: every view, updates, the keyboard, and other origins."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifact_cases import PNG, SVG, add_job, notebook, save
from browser import Browser, find_browser
from job_cases import bash, submit_job, until_exists
from services import need
from ui_server import UiServer

import hyperplane
from hyperplane.jobs.store.job_records import IN_PROGRESS
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.engine,
]

NASTY = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>"
TAB, ENTER = ("Tab", 9), ("Enter", 13, "\r")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    need("Chromium is not installed", find_browser() is not None)
    started = Browser(tmp_path / "profile")
    yield started
    started.close()


def check_requests(browser: Browser, server: UiServer) -> None:
    assert browser.problems == []
    own = (server.origin, "data:,", "data:image/", "about:")
    assert [each for each in browser.requests if not each.startswith(own)] == []


def test_every_view_runs_no_other_script_and_loads_nothing_from_elsewhere(
    browser: Browser, server: UiServer
) -> None:
    job = submit_job(bash(NASTY, f"echo '{NASTY[:22]}'; exit 3"), parameters={NASTY: NASTY})
    job.wait(170)
    browser.open(server.address)
    assert browser.evaluate("location.href") == f"{server.origin}/"
    assert browser.evaluate("document.cookie") == "", "scripts cannot read it"
    paths = ("/", "/clusters", "/jobs", "/jobs?pipeline=test", f"/jobs/{job.id}", "/records",
             "/schedules", "/pools", "/size?data=100GB", f"/jobs/{job.id}/report")  # fmt: skip
    for path in paths:
        browser.open(server.origin + path)
        assert browser.evaluate("document.querySelectorAll('h1').length") == 1, path
        assert browser.evaluate("document.querySelectorAll('img, b[onload]').length") == 0
        is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not browser.evaluate(is_wide), f"{path} scrolls to the side"
    check_requests(browser, server)


def test_a_job_that_fails_is_updated_without_a_new_page(
    browser: Browser, server: UiServer, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit_job(bash("fit", f"echo first; {until_exists(go)}; echo '{NASTY[:22]}'; exit 3"))
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs/{job.id}")
    status = "document.querySelector('table.facts td').textContent"
    browser.wait(f"{status} === '{IN_PROGRESS}'")
    browser.wait("document.querySelector('pre') && document.querySelector('pre').textContent"
                 ".includes('first')")  # fmt: skip
    browser.evaluate("window.isSamePage = true; document.getElementById('refresh').focus()")
    # A log that was folded remains folded, and the focus remains.
    browser.evaluate("document.querySelector('#logs details').open = false")
    go.touch()
    browser.wait(f"{status} === 'failed'")
    assert browser.evaluate("window.isSamePage") is True
    assert browser.evaluate("document.querySelector('#logs details').open") is False
    assert browser.evaluate("document.activeElement.id") == "refresh"
    announced = "document.getElementById('announcement').textContent"
    assert browser.evaluate(announced).endswith(": failed")
    browser.wait("document.querySelector('pre').textContent.includes('<script>')")
    count = len(browser.requests)
    time.sleep(3)
    browser.evaluate("1")
    assert len(browser.requests) == count, "a job that has ended is not requested again"
    check_requests(browser, server)


def test_pictures_of_a_job_are_shown_and_none_of_their_scripts_runs(
    browser: Browser, server: UiServer, tmp_path: Path
) -> None:
    job = add_job(tmp_path)
    loads = b'<image href="http://127.0.0.1:9/x.png" width="9" height="9"/>'
    size = b'<svg width="40" height="20" '
    content = SVG.replace(b"<svg ", size).replace(b"</svg>", loads + b"</svg>")
    save(job, f"{NASTY[:20]}.svg".replace("/", ""), content)
    save(job, "plot.png", PNG)
    picture = {"image/png": base64.b64encode(PNG).decode(), "text/html": NASTY}
    save(job, "a.ipynb", notebook({"output_type": "display_data", "data": picture}))
    browser.open(server.address)
    base = f"{server.origin}/jobs/{job.id}"
    widths = "[...document.images].map(each => each.complete ? each.naturalWidth : -1)"
    browser.open(f"{base}/artifacts")
    browser.wait(f"{widths}.every(width => width > 0)")
    assert sorted(browser.evaluate(widths)) == [1, 1, 40]
    for link in browser.evaluate("[...document.querySelectorAll('th a')].map(each => each.href)"):
        browser.open(link)
        assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    browser.open(f"{base}/report")
    browser.wait(f"{widths}.length === 2 && {widths}.every(width => width > 0)")
    check_requests(browser, server)


def test_texts_of_the_graph_fit_into_their_boxes(
    browser: Browser, server: UiServer, tmp_path: Path
) -> None:
    names = [
        "W" * 40, "m@W%" * 9, "nightly_of_the_northern_region_b", "i" * 90,
        "夜間バッチ処理の長い名前の段階", "Ежедневная загрузка заказов в хранилище", "load",
    ]  # fmt: skip
    job = add_job(tmp_path, *(bash(name, "true", depends_on=()) for name in names))
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs/{job.id}")
    texts = "[...document.querySelectorAll('.hp-steps text')]"
    assert browser.evaluate(f"{texts}.length") == 2 * len(names)
    ends = browser.evaluate(f"{texts}.map(each => each.getBBox().x + each.getBBox().width)")
    box = browser.evaluate("document.querySelector('.hp-steps rect').getBBox().width")
    assert max(ends) <= box
    # Long names fill their boxes.
    assert sorted(ends)[-5] > 0.7 * box
    titles = "[...document.querySelectorAll('.hp-steps title')].map(each => each.textContent)"
    assert [title.rpartition(": ")[0] for title in browser.evaluate(titles)] == names[:-1]


def test_updates_can_be_paused(browser: Browser, server: UiServer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = submit_job(bash("wait", until_exists(go)))
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs/{job.id}")
    browser.evaluate("document.getElementById('pause').click()")
    pressed = "document.getElementById('pause').getAttribute('aria-pressed')"
    assert browser.evaluate(pressed) == "true"
    go.touch()
    job.wait(170)
    count = len(browser.requests)
    time.sleep(3)
    browser.evaluate("1")
    assert len(browser.requests) == count
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait("document.querySelector('table.facts td').textContent === 'done'")
    check_requests(browser, server)


def test_an_error_of_the_server_keeps_the_content_and_the_updates(
    browser: Browser, server: UiServer, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit_job(bash("wait", until_exists(go)))
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs/{job.id}")
    browser.evaluate("""window.fetchOfPage = window.fetch; window.fetch = async () =>
        new Response('<div id="content" data-seconds="0">failed</div>', {status: 503})""")
    announced = "document.getElementById('announcement').textContent"
    browser.wait(f"{announced}.includes('could not update this page (status 503)')")
    assert job.id in browser.evaluate("document.getElementById('content').textContent")
    browser.evaluate("window.fetch = window.fetchOfPage")
    browser.wait(f"!{announced}.includes('503')")
    go.touch()
    browser.wait("document.querySelector('table.facts td').textContent === 'done'")
    check_requests(browser, server)


def test_updates_wait_longer_after_a_slow_response(browser: Browser, server: UiServer) -> None:
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs")
    browser.evaluate("""{
        const fetchOfPage = window.fetch, setTimer = window.setTimeout;
        window.waits = [];
        window.setTimeout = (work, delay) => { window.waits.push(delay); return 0; };
        window.fetch = async (...given) => {
            await new Promise((resolve) => setTimer(resolve, 800));
            return fetchOfPage(...given);
        };
        const pause = document.getElementById("pause");
        pause.click();
        pause.click();
    }""")
    browser.wait("window.waits.length === 1")
    assert browser.evaluate("window.waits[0]") >= 7900
    check_requests(browser, server)


def test_the_keyboard_reaches_the_content_and_logs(browser: Browser, server: UiServer) -> None:
    job = submit_job(bash("fit", "echo one; exit 3"))
    job.wait(170)
    browser.open(server.address)
    browser.open(f"{server.origin}/jobs/{job.id}")
    browser.press(*TAB)
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.press(*ENTER)
    browser.wait("document.activeElement.id === 'main'")
    reached = set()
    for _ in range(30):
        browser.press(*TAB)
        reached.add(browser.evaluate("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "PRE"} <= reached


def test_a_cluster_is_stopped_with_the_keyboard(browser: Browser, acting_server: UiServer) -> None:
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, name="stopped-here"
    )
    try:
        browser.open(acting_server.address)
        browser.open(f"{acting_server.origin}/clusters/local/stopped-here")
        browser.evaluate("document.querySelector('#action summary').focus()")
        browser.press(*ENTER)
        browser.wait("document.querySelector('#action').open")
        browser.press(*TAB)
        assert browser.evaluate("document.activeElement.textContent") == "Stop this cluster"
        browser.press(*ENTER)
        browser.wait("location.pathname === '/clusters'")
        browser.wait("document.body.textContent.includes('stopped-here is closed')")
        assert cluster.status.name == "closed"
        check_requests(browser, acting_server)
    finally:
        client.close()
        cluster.close()


def test_pages_of_other_origins_change_and_read_nothing(
    browser: Browser, acting_server: UiServer, server: UiServer, tmp_path: Path
) -> None:
    job = submit_job(bash("wait", until_exists(tmp_path / "go")))
    address = f"{acting_server.origin}/jobs/{job.id}/cancel"
    browser.open(acting_server.address)
    browser.open(server.address)  # another origin of the same host, which has the cookies, too
    code = f"""fetch("{address}", {{method: "POST", mode: "no-cors", credentials: "include"}})
        .then(() => "sent", () => "blocked")"""
    assert browser.evaluate(code) == "blocked", "the policy of the page forbids it"
    form = tmp_path / "form.html"
    form.write_text(f'<form method="post" action="{address}"></form>')
    browser.open(form.as_uri())
    browser.evaluate("document.forms[0].submit()")
    browser.wait(f"location.href === '{address}'")
    assert "another origin" in browser.evaluate("document.body.textContent")
    assert acting_server.get(f"/jobs/{job.id}").facts["status"] != "cancelled"
    # A link of another site, as in a terminal of a notebook server, is continued.
    link = tmp_path / "link.html"
    link.write_text(f'<a href="{acting_server.address}">open</a>')
    browser.call("Network.clearBrowserCookies")
    browser.open(link.as_uri())
    browser.evaluate("document.querySelector('a').click()")
    browser.wait("document.title === 'Overview - hyperplane'")
    assert browser.evaluate("location.search") == ""
    (tmp_path / "go").touch()
    assert job.wait(170) == "done"


def test_no_page_uses_the_graphql_address_even_if_it_knows_the_token(
    browser: Browser, server: UiServer, tmp_path: Path
) -> None:
    token = json.loads(server.graphql_file.read_text())["token"]
    (tmp_path / "mark.sh").write_text(f"touch {tmp_path / 'ran'}\n")
    path = json.dumps(str(tmp_path / "mark.sh"))
    query = f"mutation {{ createPipelineJob(data: {{pipelineYamlPath: {path}}}) {{ id }} }}"
    body = json.dumps(json.dumps({"query": query}))
    before = len(open_store().find())

    def fetch(address: str, kind: str, mode: str) -> str:
        return browser.evaluate(
            f"""fetch("{address}", {{method: "POST", mode: "{mode}", credentials: "include",
                headers: {{"content-type": "{kind}", "authorization": "Bearer {token}"}},
                body: {body}}}).then(answer => String(answer.status), () => "blocked")"""
        )

    address = f"{server.origin}/graphql"
    browser.open(server.address)
    assert fetch("/graphql", "application/json", "same-origin") == "403", "not even its own page"
    page = tmp_path / "page.html"
    page.write_text("<title>another site</title><form method=post enctype=text/plain></form>")
    browser.open(page.as_uri())
    assert fetch(address, "application/json", "cors") == "blocked"
    assert fetch(address, "text/plain", "no-cors") in ("blocked", "0"), "nothing can be read"
    browser.evaluate(f"document.forms[0].action = '{address}'; document.forms[0].submit()")
    browser.wait(f"location.href === '{address}'")
    assert "not for pages of a browser" in browser.evaluate("document.body.textContent")
    assert len(open_store().find()) == before
    assert not (tmp_path / "ran").exists()
