"""Views of the page, without a server: content, filters, pages and escaped texts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import dask.config
import pytest
from job_cases import bash
from starlette.datastructures import QueryParams
from typer.testing import CliRunner
from ui_server import Page, read

from hyperplane.calculator import measure
from hyperplane.cli import app
from hyperplane.clusters import cluster_listing
from hyperplane.clusters.cluster_listing import ClusterListing
from hyperplane.clusters.dask import scheduler_requests
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError
from hyperplane.errors import JobError
from hyperplane.history import PlanSummary, RunRecord, RunTimeline
from hyperplane.history.store import write_run
from hyperplane.jobs import Pipeline, list_jobs, schedules
from hyperplane.jobs.attempt_logs import read_log_end
from hyperplane.jobs.execution.requirements import INSTALL_STEP
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import render_job, render_jobs
from hyperplane.jobs.job_list import JobList
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS, Attempt, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports.job_report import draw_attempts
from hyperplane.ui import (
    cluster_views,
    job_list_view,
    job_view,
    live_cluster,
    overview,
    record_views,
    schedule_view,
    sizing_views,
)
from hyperplane.ui.elements import make_path
from hyperplane.ui.live_cluster import LiveCluster, make_record
from hyperplane.ui.view import PageNotFound, PageRequest, View

pytestmark = pytest.mark.process

NASTY = "<script>alert('1')</script>&\"><b onload=x>"
GB = 10**9


def ask(path: str = "/", query: str = "", actions: bool = False, **names: str) -> PageRequest:
    return PageRequest(path, QueryParams(query), names, actions)


def render(view: View, request: PageRequest | None = None) -> Page:
    return read(view.render_page(request or ask()))


def rows_of(page: Page) -> list[list[str]]:
    """Texts of the cells of the first table with a caption."""
    table = next(each for each in page.root.iter("table") if each.find("caption") is not None)
    return [["".join(cell.itertext()) for cell in row] for row in table.find("tbody")]


@pytest.fixture
def add_jobs(place: Path) -> Iterator[Any]:
    """Store ended jobs; remove all at the end."""

    def add(pipeline: str, count: int = 1, **fields: Any) -> list[Job]:
        step = bash("one", "true")
        added = []
        for number in range(count):
            job = new_job(Pipeline.from_steps(pipeline, [step]), parameters={"day": str(number)})
            at = 1_700_000_000.0 + number
            times = {"submitted": at, "started": at, "ended": at + 60}
            job = replace(job, **{"status": DONE, **times, "folder": str(place), **fields})
            open_store().add(job)
            added.append(job)
        return added

    yield add
    with open_store()._engine.begin() as connection:
        for table in ("hyperplane_attempts", "hyperplane_job_numbers", "hyperplane_jobs"):
            connection.exec_driver_sql(f"DELETE FROM {table}")


def test_many_jobs_are_shown_in_pages(add_jobs: Any) -> None:
    add_jobs("nightly", 230)
    seen = []
    query = ""
    for number in (1, 2, 3):
        page = render(job_list_view.list_jobs(ask("/jobs", query)))
        rows = rows_of(page)
        seen += [row[1] for row in rows]
        assert ("Older" in page.links) == (number < 3)
        assert ("Newer" in page.links) == (number > 1)
        query = page.links.get("Older", "").partition("?")[2]
    assert len(seen) == len(set(seen)) == 230
    assert len(rows) == 30
    assert rows_of(render(job_list_view.list_jobs(ask("/jobs", "page=x")))) != rows
    beyond = render(job_list_view.list_jobs(ask("/jobs", "page=99")))
    assert "jobs: none" in beyond.text


def test_the_filters_are_those_of_the_command(add_jobs: Any) -> None:
    add_jobs("filtered", 2)
    add_jobs("weekly", status=FAILED, reason="step one: exit 3", schedule="at-six")
    cases = {
        "pipeline=filtered": 2,
        "status=failed": 1,
        "status=failed&status=done": 3,
        "text=exit+3": 1,
        "schedule=at-six": 1,
        "since=1+day": 0,
        "": 3,
    }
    for query, count in cases.items():
        page = render(job_list_view.list_jobs(ask("/jobs", query)))
        found = rows_of(page) if count else []
        assert len(found) == count, query
    page = render(job_list_view.list_jobs(ask("/jobs", "pipeline=filtered&status=done")))
    assert page.root.find(".//input[@name='pipeline']").get("value") == "filtered"
    checked = [each.get("value") for each in page.root.iter("input") if "checked" in each.attrib]
    assert checked == ["done"]
    chart = page.root.find(".//*[@id='durations']")
    assert "filtered #1: done, 1 min 0 s" in "".join(chart.itertext())


def test_the_given_names_of_jobs_are_listed(add_jobs: Any) -> None:
    add_jobs("named", name="of-ada")
    add_jobs("named")
    rows = rows_of(render(job_list_view.list_jobs(ask("/jobs", "pipeline=named"))))
    assert {(row[0], row[2]) for row in rows} == {("named #1", "of-ada"), ("named #2", "")}


def test_a_job_with_times_of_no_year_is_listed(add_jobs: Any) -> None:
    [job] = add_jobs("damaged", ended=math.inf)
    add_jobs("damaged")
    for query in ("", "pipeline=damaged"):
        page = render(job_list_view.list_jobs(ask("/jobs", query)))
        assert {row[-1] for row in rows_of(page)} == {"inf s", "1 min 0 s"}
        assert "nan" not in page.text
    assert render(job_view.show_job(ask(id=job.id))).facts["took"] == "inf s"
    assert "inf s" in str(list_jobs(pipeline="damaged"))


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("", 5.0), ("status=done&page=1", 5.0), ("page=2", 0.0), ("text=x", 0.0)],
)
def test_costly_lists_are_not_updated(add_jobs: Any, query: str, seconds: float) -> None:
    add_jobs("many", 101)
    assert job_list_view.list_jobs(ask("/jobs", query)).seconds == seconds


@pytest.mark.parametrize("since", ["9999999999999 days", "0001-01-01"])
def test_a_time_before_all_years_is_a_fault(since: str) -> None:
    for view in (job_list_view.list_jobs, record_views.list_records):
        shown = view(ask("/", urlencode({"since": since})))
        assert shown.code == 400
        assert "expected a date and time such as" in render(shown).text
    result = CliRunner().invoke(app, ["job", "list", "--since", since])
    assert result.exit_code == 2
    assert "expected a date and time such as" in result.stderr


def test_faults_of_filters_are_shown_with_the_form() -> None:
    view = job_list_view.list_jobs(ask("/jobs", "status=don&since=yesterday"))
    assert view.code == 400
    page = render(view)
    alert = page.root.find(".//*[@role='alert']")
    assert len(alert.findall(".//li")) == 2
    assert "did you mean done?" in page.text
    assert page.root.find(".//input[@name='since']").get("value") == "yesterday"
    view = record_views.list_records(ask("/records", "since=yesterday"))
    assert view.code == 400


def test_every_text_of_a_job_is_escaped(add_jobs: Any, place: Path) -> None:
    (place / "a.log").write_text(f"{NASTY}\n\x1b[31mred\x1b[0m\x00\u202e")
    [job] = add_jobs(
        NASTY, status=FAILED, reason=NASTY, parameters={NASTY: NASTY}, output=NASTY,
        schedule=NASTY, name=NASTY, dashboard="javascript:alert(1)", runner=NASTY,
    )  # fmt: skip
    open_store().save_attempt(
        Attempt(job.id, "one", -1, 1, FAILED, 1_700_000_000.0, 1_700_000_060.0, 1, NASTY,
                log="a.log")
    )  # fmt: skip
    for source in (
        job_view.show_job(ask(f"/jobs/{job.id}", actions=True, id=job.id)).render_page(ask()),
        job_list_view.list_jobs(ask("/jobs", urlencode({"pipeline": NASTY}))).render_page(ask()),
        job_list_view.list_jobs(ask("/jobs", "text=script")).render_page(ask()),
        job_view.render_report(ask(id=job.id)),
    ):
        assert "<script>alert" not in source
        assert "<b " not in source
        assert "\x1b" not in source
        assert "\u202e" not in source
        assert NASTY in read(source).text


def test_a_job_shows_its_graph_attempts_and_logs(add_jobs: Any, place: Path) -> None:
    [job] = add_jobs("shown", status=IN_PROGRESS, ended=0.0)
    (place / "a.log").write_text("first\nlast line\n")
    attempt = Attempt(job.id, "one", -1, 1, IN_PROGRESS, time.time() - 5, log="a.log")
    open_store().save_attempt(attempt)
    view = job_view.show_job(ask(id=job.id))
    assert view.seconds > 0, "it is updated"
    assert view.state == "shown #1: in progress"
    page = render(view)
    assert page.facts["status"] == "in progress"
    assert page.facts["parameter"] == "day = 0"
    assert "last line" in page.text
    assert page.root.find(".//*[@id='log-0']").get("open") == ""
    assert page.root.find(".//{*}svg[@class='hp-steps']") is not None
    assert "Cancel this job" not in page.text
    acting = render(job_view.show_job(ask(id=job.id, actions=True)))
    form = acting.root.find(".//form")
    assert (form.get("method"), form.get("action")) == ("post", f"/jobs/{job.id}/cancel")
    open_store().update(job.id, status=DONE, ended=time.time())
    ended = job_view.show_job(ask(id=job.id, actions=True))
    assert ended.seconds == 0
    assert "Cancel this job" not in render(ended).text
    with pytest.raises(JobError, match="already done"):
        job_view.cancel_job(ask(id=job.id))
    with pytest.raises(PageNotFound, match="no such job"):
        job_view.show_job(ask(id="absent"))


def test_the_log_of_a_running_step_with_secrets_is_not_shown(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2-hunter2")
    step = bash("one", "true", secrets=("password",))
    job = new_job(Pipeline.from_steps("secret", [step]))
    job = replace(job, status=IN_PROGRESS, started=1.7e9, folder=str(place))
    open_store().add(job)
    (place / "s.log").write_text("hunter2-hunter2")
    attempt = Attempt(job.id, "one", -1, 1, IN_PROGRESS, 1.7e9, log="s.log")
    open_store().save_attempt(attempt)
    sources = (job_view.show_job(ask(id=job.id)).render_page(ask()),
               job_view.render_report(ask(id=job.id)))  # fmt: skip
    for source in sources:
        assert "hunter2" not in source
        assert "only then its secrets are masked" in source


def render_everywhere(job: Job) -> tuple[str, ...]:
    """The page of a job, its report, and its output in a notebook."""
    return (
        job_view.show_job(ask(id=job.id)).render_page(ask()),
        job_view.render_report(ask(id=job.id)),
        render_job(job, open_store().attempts(job.id)),
    )


def test_the_log_of_a_running_step_without_a_definition_is_not_shown(
    add_jobs: Any, place: Path
) -> None:
    (place / "s.log").write_text("hunter2-hunter2")
    [job] = add_jobs("damaged", status=IN_PROGRESS, definition='{"name": "damaged"}')
    for number, (step, is_shown) in enumerate((("one", False), (INSTALL_STEP, True)), start=1):
        attempt = Attempt(job.id, step, -1, number, IN_PROGRESS, 1.7e9, log="s.log")
        assert ("hunter2" in read_log_end(job, attempt, None, 9)) is is_shown
    open_store().save_attempt(Attempt(job.id, "one", -1, 1, IN_PROGRESS, 1.7e9, log="s.log"))
    for source in render_everywhere(job):
        assert "hunter2" not in source
        assert "only then its secrets are masked" in source


def test_a_log_whose_path_has_a_nul_character_is_a_message(add_jobs: Any) -> None:
    [job] = add_jobs("nul", status=FAILED)
    open_store().save_attempt(Attempt(job.id, "one", -1, 1, FAILED, 1.7e9, 1.7e9, log="a\0b"))
    for source in render_everywhere(job):
        assert "its path has a NUL character" in source


def test_a_log_that_is_a_loop_of_links_is_a_message(add_jobs: Any, place: Path) -> None:
    (place / "loop.log").symlink_to("loop.log")
    [job] = add_jobs("loop", status=FAILED)
    open_store().save_attempt(Attempt(job.id, "one", -1, 1, FAILED, 1.7e9, 1.7e9, log="loop.log"))
    for source in render_everywhere(job):
        assert "its log cannot be read (" in source
    attempt = Attempt(job.id, "one", -1, 1, FAILED, 1.7e9, 1.7e9, log="\ud800.log")
    assert read_log_end(job, attempt, None, 9).startswith("its log cannot be read (")


def test_only_logs_in_the_folder_of_the_job_are_shown(add_jobs: Any, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("of another program")
    [job] = add_jobs("linked", status=FAILED)
    for log in (str(tmp_path / "other.txt"), "../../etc/passwd"):
        open_store().save_attempt(Attempt(job.id, "one", -1, 1, FAILED, 1.7e9, 1.7e9, log=log))
        for source in (job_view.show_job(ask(id=job.id)).render_page(ask()),
                       job_view.render_report(ask(id=job.id))):  # fmt: skip
            assert "of another program" not in source
            assert "root:" not in source


def test_a_job_with_a_damaged_definition_is_shown(add_jobs: Any) -> None:
    [job] = add_jobs("damaged", status=FAILED, definition='{"name": "damaged"}')
    open_store().save_attempt(Attempt(job.id, "one", -1, 1, FAILED, 1.7e9, 1.7e9, reason="exit 3"))
    for source in (job_view.show_job(ask(id=job.id)).render_page(ask()),
                   job_view.render_report(ask(id=job.id))):  # fmt: skip
        assert "exit 3" in source


def test_records_are_listed_with_their_reports() -> None:
    for number in range(60):
        write_run(
            RunRecord(
                name=f"20261127-16{number:02d}00-c{number}", cluster=f"c{number}",
                started=1_700_000_000.0 + number, ended=1_700_000_100.0, exit_reason="closed",
            )
        )  # fmt: skip
    page = render(record_views.list_records(ask("/records")))
    assert len(rows_of(page)) == record_views.PAGE_SIZE
    assert "Older" in page.links
    found = render(record_views.list_records(ask("/records", "text=c59")))
    [row] = rows_of(found)
    assert row[0] == "20261127-165900-c59"
    record = render(record_views.show_record(ask(name=row[0])))
    assert record.title == "Run of c59"
    assert record.facts["ended"] == "its program closed it"
    report = record_views.render_report(ask(name=row[0]))
    assert read(report).title == "Run of c59"


def test_a_damaged_record_is_named(place: Path) -> None:
    folder = place / "state" / "hyperplane" / "history"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "20200101-000000-bad.json"
    file.write_text("{")
    page = render(record_views.list_records(ask("/records", "page=2")))
    file.unlink()
    assert "is no record of a run" in page.text


def test_at_most_five_damaged_records_are_named(place: Path) -> None:
    folder = place / "state" / "hyperplane" / "history"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = [folder / f"20200101-00000{number}-bad.json" for number in range(8)]
    for file in files:
        file.write_text("{")
    page = render(record_views.list_records(ask("/records", "page=2")))
    for file in files:
        file.unlink()
    assert page.text.count("is no record of a run") == 5
    assert "and 3 more files of this folder that are no records" in page.text


def test_a_store_that_does_not_answer_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(name="still-here")
    monkeypatch.setattr(cluster_views, "read_records", lambda: [cluster])
    with dask.config.set({"hyperplane.jobs.store": "postgresql://x@127.0.0.1:1/x"}):
        page = render(overview.show_overview(ask()))
        assert "still-here" in page.links
        assert "The jobs cannot be listed:" in page.text
        view = job_list_view.list_jobs(ask("/jobs"))
    assert view.code == 503
    text = render(view).text
    assert "The job store cannot be opened:" in text
    assert "hyperplane.jobs.store" in text
    assert "filters" not in text


@pytest.mark.parametrize("at", [1e18, -1e18, 1e300, float("inf"), float("nan")])
def test_a_job_with_times_of_no_calendar_is_shown(at: float) -> None:
    times = {"submitted": at, "started": at, "ended": at}
    job = Job(**{**vars(new_job(Pipeline.from_steps("p", [bash("one", "true")]))), **times})
    attempt = Attempt(job.id, "one", -1, 1, DONE, at, at)
    assert f"{at:g}" in render_job(job, [attempt])
    assert f"{at:g}" in render_jobs([job])
    assert f"{at:g}" in str(JobList([job]))
    render(job_view.describe_job(job, [attempt], allow_actions=False, now=1.7e9))
    job_list_view.make_job_table([job], "jobs")
    draw_attempts([attempt])


def test_schedules_have_their_last_run(add_jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [job] = add_jobs("planned", schedule="at-six")
    lines = {"at-six": "0 6 * * * cd / && x", "new": "* * * * * cd / && y"}
    monkeypatch.setattr(schedules, "read_installed", lambda: lines)
    page = render(schedule_view.list_schedules(ask()))
    first, second = rows_of(page)
    assert first[:3] == ["at-six", "0 6 * * *", "planned #1"]
    assert page.links["planned #1"] == f"/jobs/{job.id}"
    assert second[2] == "none"


def test_a_machine_without_cron_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    page = render(schedule_view.list_schedules(ask()))
    assert "a machine with cron" in page.text


def test_pools_have_sizes_and_prices() -> None:
    pool = {"cores": 4, "ram_gb": 16, "allocatable_cores": 3.5,
            "allocatable_ram_gb": 12, "price_per_hour": 0.25}  # fmt: skip
    settings = {"hyperplane.pools.priced": pool, "hyperplane.sizing.currency": "EUR"}
    with dask.config.set(settings):
        rows = {row[0]: row for row in rows_of(render(sizing_views.list_pools(ask())))}
    assert rows["priced"][2:6] == ["3.5", "4", "12", "16"]
    assert rows["priced"][-1] == "0.25 EUR"


def test_the_form_sizes_a_cluster() -> None:
    empty = render(sizing_views.size_cluster(ask("/size")))
    assert empty.root.find(".//*[@role='alert']") is None
    query = (
        "data=100GB&operation=groupby&tasks=heavy&basis=allocatable&pool=&moves_data=yes&pieces="
    )
    page = render(sizing_views.size_cluster(ask("/size", query)))
    assert "30 nodes of pool 32_32" in page.facts["cluster"]
    assert "800 GB needed" in page.facts["memory"]
    selected = [each.get("value") for each in page.root.iter("option") if "selected" in each.attrib]
    assert "heavy" in selected


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("data=/etc/passwd", 1),
        ("data=s3%3A%2F%2Fbucket%2F*.parquet&operation=grupby&tasks=x&pieces=no", 4),
        ("data=&pool=99_99", 2),
        ("data=1GB&moves_data=maybe", 1),
        (f"data={NASTY.replace('&', '%26')}", 1),
    ],
)
def test_faults_of_the_form_are_shown_and_no_file_is_read(
    query: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_measure_paths", lambda data: pytest.fail("files are read"))
    view = sizing_views.size_cluster(ask("/size", query))
    assert view.code == 400
    alert = render(view).root.find(".//*[@role='alert']")
    assert len(alert.findall(".//li")) == count, "".join(alert.itertext())


def make_cluster(**fields: Any) -> ClusterRecord:
    values = {
        "name": "flights", "engine": "local", "scheduler": "tcp://127.0.0.1:1", "dashboard": "",
        "pid": 1, "started": 1.0, "workers": 2, "threads": 4, "ram_gb": 4.0, "job": "",
    }  # fmt: skip
    return ClusterRecord(**{**values, **fields})


def make_usage(**plan: Any) -> dict[str, Any]:
    timeline = {"started": 1000.0, "part_seconds": 100.0, "total": [GB] * 36,
                "spilled": [0] * 36, "processes": [4] * 18 + [2] * 18}  # fmt: skip
    plan = {"engine": "local", "nodes": 2, "nprocs": 2, "nthreads": 3, "ram_per_proc": GB, **plan}
    return {"timeline": timeline, "plan": plan, "workers": [], "tasks": [], "computations": []}


def test_the_cost_so_far_counts_the_processes_that_were_connected() -> None:
    record = make_record(make_cluster(), make_usage(), 4600.0)
    live = LiveCluster(record, "USD", 0.5)
    assert live.process_hours == pytest.approx(3.0)  # four for half an hour, then two
    assert live.cost == pytest.approx(1.5)
    assert live.core_hours == pytest.approx(9.0)
    assert (live.processes, live.memory, live.limit) == (2, GB, 2 * GB)
    assert LiveCluster(record).cost is None
    just_begun = make_record(make_cluster(), make_usage(), 1036.0)
    assert LiveCluster(just_begun).process_hours == pytest.approx(0.03)


def test_the_present_limit_of_a_scheduler_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {**make_usage(), "limit": 5 * GB}
    monkeypatch.setattr(scheduler_requests, "read_usage", lambda record: usage)
    assert live_cluster.read_live(make_cluster()).limit == 5 * GB


def test_prices_are_those_of_the_configured_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_requests, "read_usage", lambda record: make_usage(pool="priced"))
    pool = {"cores": 4, "ram_gb": 16, "allocatable_cores": 3.5,
            "allocatable_ram_gb": 12, "price_per_hour": 1.0}  # fmt: skip
    with dask.config.set({"hyperplane.pools.priced": pool, "hyperplane.sizing.currency": "EUR"}):
        live = live_cluster.read_live(make_cluster())
    assert (live.price, live.currency) == (0.5, "EUR")
    assert live_cluster.read_live(make_cluster()).price is None, "the pool has no price here"


def test_figures_of_another_version_are_an_error() -> None:
    with pytest.raises(EngineError, match="another version"):
        make_record(make_cluster(), make_usage(unknown=1), 4600.0)


@pytest.mark.parametrize("engine", ["local", "ray:local"])
def test_a_cluster_without_figures_shows_its_record(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    record = make_cluster(engine=engine, job=NASTY, dashboard="http://127.0.0.1:8787/status")
    monkeypatch.setattr(cluster_views, "read_records", lambda: [record])
    monkeypatch.setattr(scheduler_requests, "ANSWER_SECONDS", 0.5)
    page = render(cluster_views.show_cluster(ask(engine=engine, name="flights", actions=True)))
    assert page.facts["planned"] == "2 worker processes, 4 threads, 4 GB"
    assert page.links["http://127.0.0.1:8787/status"] == "http://127.0.0.1:8787/status"
    assert page.root.find(".//form").get("method") == "post"
    expected = "did not answer within 0.5 s" if engine == "local" else "Its dashboard shows"
    assert expected in page.text


def test_clusters_elsewhere_are_shown_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = (
        ListedCluster("flights", "slurm", "Slurm", "2 RUNNING", jobs=("41", "42")),
        ListedCluster(NASTY, "kubernetes", "namespace lab", "running", shared_owner="root"),
    )
    listing = ClusterListing(clusters, ("gateway: no answer within 7 s",))
    monkeypatch.setattr(cluster_listing, "list_clusters", lambda known: listing)
    page = render(cluster_views.list_other_clusters(ask("/other-clusters")), ask("/other-clusters"))
    assert page.links["flights"] == "/other-clusters/slurm/flights"
    assert "gateway: no answer within 7 s" in page.text
    assert page.root.find(".//nav//a[@aria-current]").text == "Clusters"
    shown = render(cluster_views.show_other_cluster(ask(engine="slurm", name="flights")))
    assert shown.facts["jobs"] == "41, 42"
    assert shown.root.find(".//form") is None, "without actions"
    names = {"engine": "kubernetes", "name": NASTY}
    page = render(cluster_views.show_other_cluster(ask(actions=True, **names)))
    assert page.title == f"Cluster {NASTY}"
    assert "others may have the name 'root', too" in page.text
    path = make_path("other-clusters", "kubernetes", NASTY, "stop")
    assert page.root.find(".//form").get("action") == path
    stopped: list[ListedCluster] = []
    monkeypatch.setattr(cluster_listing, "stop_listed", stopped.append)
    assert cluster_views.stop_other_cluster(ask(**names)) == make_path(
        "other-clusters", closed=NASTY
    )
    assert stopped == [clusters[1]]
    with pytest.raises(PageNotFound, match="lists a cluster 'gone' of slurm; gateway: no answer"):
        cluster_views.stop_other_cluster(ask(engine="slurm", name="gone"))

    def refuse(cluster: ListedCluster) -> None:
        raise EngineError(cluster.engine, "scancel: permission denied")

    monkeypatch.setattr(cluster_listing, "stop_listed", refuse)
    with pytest.raises(EngineError, match=r"flights may still be running: .*permission denied"):
        cluster_views.stop_other_cluster(ask(engine="slurm", name="flights"))


def test_plans_of_schedulers_are_those_of_records() -> None:
    plan = PlanSummary(engine="local", pool="16_16", nodes=1, nprocs=2, nthreads=1)
    usage = {"plan": plan.model_dump(), "timeline": None}
    record = make_record(make_cluster(), usage, 4600.0)
    assert record.plan == plan
    assert LiveCluster(record).process_hours == 0
    assert LiveCluster(record).memory == 0
    assert RunTimeline().processes == []


def test_content_is_sent_again_only_if_it_has_changed() -> None:
    first, same = (View("a", ("<p>x</p>",), 2.0, "runs") for _ in range(2))
    assert first.render_content() == same.render_content()
    digest = first.render_content()[1]
    assert f'data-digest="{digest}"' in first.render_page(ask())
    for other in (replace(first, state="ended"), replace(first, seconds=0.0),
                  replace(first, parts=("<p>y</p>",))):  # fmt: skip
        assert other.render_content()[1] != digest


def test_updates_do_not_repeat_that_a_cluster_is_closed() -> None:
    request = ask("/clusters", urlencode({"closed": NASTY}))
    view = cluster_views.list_clusters(request)
    page = render(view, request)
    assert page.text.count(f"{NASTY} is closed") == 1
    assert page.links["Refresh"] == "/clusters"
    assert "is closed" not in view.render_content()[0]


def test_pages_are_usable_with_keyboard_and_screen_reader(add_jobs: Any) -> None:
    add_jobs("nightly", 3)
    request = ask("/jobs")
    page = read(job_list_view.list_jobs(request).render_page(request))
    root = page.root
    assert root.get("lang") == "en"
    skip = root.find(".//body/a")
    assert skip.get("href") == "#main"
    assert root.find(".//main").get("id") == "main"
    assert root.find(".//nav[@aria-label='Pages']//a[@aria-current='page']").text == "Jobs"
    assert len(root.findall(".//h1")) == 1
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    labels = {each.get("for") for each in root.iter("label")}
    for field in root.iter("input"):
        assert field.get("id") in labels or field.get("type") == "checkbox"
    for table in root.iter("table"):
        for head in table.iter("th"):
            assert head.get("scope") in ("col", "row")
    assert root.find(".//span[@role='status']").get("aria-live") == "polite"
