"""Take the pictures of the gallery with Chromium: ``python -m scripts.html_pictures [NAME ...]``.

Writes ``html-<name>-light.png`` of results as a notebook shows them, ``ui-<name>-light.png`` of
pages of ``hyperplane ui``, ``report-light.png`` and ``job-report-light.png`` in ``docs/_static``,
of those that pages show with a dark theme also ``...-dark.png``. With names it takes these
pictures only, such as ``ui-job``; with ``--lab FOLDER`` it also writes results with a theme of
JupyterLab other than that of the browser. The sample data is in :mod:`scripts.picture_data`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import dask.config
from PIL import Image, ImageChops
from starlette.datastructures import QueryParams

import hyperplane
from hyperplane.clusters import cluster_listing
from hyperplane.clusters.dask.local import engine as local_engine
from hyperplane.clusters.dask.progress_texts import ComputeFigures
from hyperplane.core.wait_display import WaitStatus
from hyperplane.history.store import write_run
from hyperplane.jobs import Artifact, schedules
from hyperplane.jobs.artifact_html import render_artifacts
from hyperplane.jobs.job_html import render_job, render_jobs
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import render_report
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.storage.result import SaveResult
from hyperplane.ui import (
    cluster_views,
    job_list_view,
    job_view,
    overview,
    record_views,
    schedule_view,
    sizing_views,
)
from hyperplane.ui.application import read_style
from hyperplane.ui.artifact_view import describe_artifacts, make_key, show_artifact
from hyperplane.ui.cluster_views import describe_cluster
from hyperplane.ui.view import PageRequest, View
from scripts import picture_data
from scripts.picture_data import NOW

#: Pictures of other programs, which :mod:`scripts.lab_picture` takes.
SCREENSHOTS = ("lab-pane",)
STATIC = Path(__file__).resolve().parents[1] / "docs" / "_static"
_WIDTH, _HEIGHT = 1180, 2400
#: Colors of the picture that remain; text is anti-aliased in grays.
_COLORS = 128
#: The folder that the pictures show in place of that of the sample data.
_FOLDER = "/home/ada/flights"
#: Cores and memory of the machine of the plan.
_MACHINE = MachineCapacity(8, 16_000_000_000)
#: Theme of the browser -> value of Chromium's setting.
_SCHEMES = {"dark": 0, "light": 1}
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>:root{{color-scheme:light dark}}
body{{margin:12px;font:14px "DejaVu Sans",sans-serif;{style}}}</style><body {attributes}>{body}"""
_LAB = {
    "dark": ("background:#111;color:#eee;--jp-ui-font-color1:#eee", 'data-jp-theme-light="false"'),
    "light": ("background:#fff;color:#111;--jp-ui-font-color1:#111", 'data-jp-theme-light="true"'),
}


@dataclass(frozen=True)
class Picture:
    """A picture of the documentation.

    Parameters
    ----------
    make : callable
        Returns the HTML of a result, or a whole page; its argument is a folder for sample data.
    has_dark : bool
        Whether there is a second picture with a dark theme.
    height : int
        Pixels after which the picture ends.
    """

    make: Callable[[Path], str]
    has_dark: bool = False
    height: int = _HEIGHT

    @property
    def themes(self) -> tuple[str, ...]:
        """Themes of the pictures."""
        return ("light", "dark") if self.has_dark else ("light",)


def _advice(folder: Path) -> str:
    del folder
    return hyperplane.size_cluster("100GB", "groupby")._repr_html_()


def _plan(folder: Path) -> str:
    del folder
    with mock.patch.object(local_engine, "read_capacity", return_value=_MACHINE):
        plan = hyperplane.plan_cluster(num_workers=2, pool="16_16", engine="local", name="flights")
    return plan._repr_html_()


def _saved(folder: Path) -> str:
    del folder
    return SaveResult(
        f"{_FOLDER}/delays.parquet", 24, 5_800_000, 310_000_000, 6, seconds=12.4
    )._repr_html_()


def _cluster(folder: Path) -> str:
    """Return the HTML of a cluster, with the usual ports in place of those it got."""
    with dask.config.set({"temporary-directory": str(folder)}):
        client, cluster = hyperplane.initialize_cluster(
            num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact",
            name="flights", budget=20, idle_timeout="30 min",
        )  # fmt: skip
        time.sleep(2)  # until there are figures
        shown = cluster._repr_html_()
        client.close()
        cluster.close()
    # Below a fold that is closed: addresses, folders and times of the scheduler and the workers.
    fold = r"\1</details>"
    shown = re.sub(r"(<details><summary>.*?</summary>).*</details>", fold, shown, flags=re.DOTALL)
    return re.sub(r"127\.0\.0\.1:\d+(/\w+)?/status", "127.0.0.1:8787/status", shown)


def _job(folder: Path) -> str:
    job, attempts, _ = picture_data.make_jobs(folder)
    return render_job(job, attempts)


def _jobs(folder: Path) -> str:
    return render_jobs(picture_data.make_jobs(folder)[2], picture_data.BEGAN + 86700)


def _artifacts(folder: Path) -> str:
    job, _, _ = picture_data.make_jobs(folder)
    return render_artifacts(picture_data.make_artifacts(job, folder))


def _artifacts_page(folder: Path) -> str:
    """Return the page of the artifacts of a job, with its picture inside."""
    job, _, _ = picture_data.make_jobs(folder)
    artifacts = picture_data.make_artifacts(job, folder)[::-1]
    view = describe_artifacts(job, artifacts, "artifacts 1 to 3, the newest first")
    page = _add_style(view.render_page(PageRequest(f"/jobs/{job.id}/artifacts", QueryParams(""))))
    content = base64.b64encode((folder / "delays.png").read_bytes()).decode()
    return re.sub(r'src="/jobs/[^"]*"', f'src="data:image/png;base64,{content}"', page)


def _artifact_page(folder: Path) -> str:
    """Return the page of an artifact: the executed notebook of a step."""
    with _provide_data(folder):
        saved = _save_artifacts(folder)[-1]
        names = {"id": picture_data.JOB, "key": make_key(saved)}
        path = f"/jobs/{picture_data.JOB}/artifacts/{names['key']}"
        request = PageRequest(path, QueryParams(""), names)
        return _add_style(show_artifact(request).render_page(request))


def _job_report(folder: Path) -> str:
    """Return the report of the job that has failed, with what its steps have saved."""
    with _provide_data(folder):
        _save_artifacts(folder)
        request = PageRequest("", QueryParams(""), {"id": picture_data.JOB})
        return job_view.render_report(request)


def _save_artifacts(folder: Path) -> list[Artifact]:
    """Store the artifacts of the job that has failed, the notebook last."""
    job = open_store().get(picture_data.JOB)
    made = picture_data.make_artifacts(job, folder)
    made.append(picture_data.make_notebook(job, folder))
    open_store().save_artifacts(made)
    return made


def _forecast(folder: Path) -> str:
    del folder
    import dask.array as da

    layout = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=2, ram_gb_per_proc=1, engine="local", local_fit="exact"
    )
    numbers = da.random.default_rng(0).random((8000, 8000), chunks=(1000, 8000))
    turned = numbers.rechunk((8000, 1000))
    return hyperplane.forecast(turned.std(axis=0).max(), layout, history=False)._repr_html_()


def _progress(folder: Path) -> str:
    """Return the outputs of three cells that wait: a start, a computation and a job."""
    del folder
    figures = ComputeFigures(
        1240, 760, 22.0, 4, 0, 3_100_000_000, 8_000_000_000, 0,
        (("read-parquet", 240, 240, 2_400_000_000), ("assign", 232, 240, 2_300_000_000),
         ("groupby-sum", 12, 60, 90_000_000)), 2,
    )  # fmt: skip
    start = WaitStatus("start (slurm)", "workers", 3, 8, "squeue reports: 5 pending (Resources)")
    detail = "running: transform (3 of 10 done); 2 waiting"
    job = WaitStatus("job nightly #12", "steps done", 2, 5, detail)
    shown = (start.as_html(42.0), figures.as_html(37.0), job.as_html(35.0))
    return "<br>".join(f"<div>{each}</div>" for each in shown)


def _report(folder: Path) -> str:
    del folder
    return render_report(picture_data.make_records()[0])


def _show(
    path: str, view: Callable[[PageRequest], View], query: str = "", **names: str
) -> Callable[[Path], str]:
    """Return a function that returns a page of ``hyperplane ui``, with its style."""

    def make(folder: Path) -> str:
        with _provide_data(folder):
            request = PageRequest(path, QueryParams(query), names)
            return _add_style(view(request).render_page(request))

    return make


def _add_style(page: str) -> str:
    """Return a page of ``hyperplane ui`` with its style and without its script."""
    style = f"<style>{read_style()}</style>"
    page = page.replace('<link rel="stylesheet" href="/style.css"/>', style)
    return page.replace('<script src="/live.js" defer="">', "<script>")


def _show_cluster(request: PageRequest) -> View:
    del request
    return describe_cluster(*picture_data.make_cluster(), allow_actions=True)


def _show_other_cluster(request: PageRequest) -> View:
    return cluster_views.show_other_cluster(replace(request, allow_actions=True))


@contextlib.contextmanager
def _provide_data(folder: Path) -> Iterator[None]:
    """Let views read the sample data: job store, records, clusters and schedules."""
    clusters = picture_data.list_clusters()
    home = folder / "jobs"
    with (
        mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder)}),
        dask.config.set({"hyperplane.jobs.home": str(home), "hyperplane.jobs.store": None}),
        mock.patch.object(cluster_views, "read_records", return_value=clusters),
        mock.patch.object(
            cluster_listing, "list_clusters", return_value=picture_data.list_clusters_elsewhere()
        ),
        mock.patch.object(schedules, "read_installed", return_value=picture_data.SCHEDULES),
        mock.patch.object(time, "time", return_value=NOW),
    ):
        if not home.exists():
            for each in picture_data.make_records():
                write_run(each)
            picture_data.fill_store(open_store(), folder)
        yield


#: Pictures by the names of their files, without theme and suffix.
PICTURES = {
    "html-advice": Picture(_advice, has_dark=True),
    "html-plan": Picture(_plan, has_dark=True),
    "html-cluster": Picture(_cluster, has_dark=True),
    "html-job": Picture(_job, has_dark=True),
    "html-jobs": Picture(_jobs, has_dark=True),
    "html-artifacts": Picture(_artifacts, has_dark=True),
    "html-save": Picture(_saved, has_dark=True),
    "html-forecast": Picture(_forecast, has_dark=True),
    "html-progress": Picture(_progress, has_dark=True),
    "report": Picture(_report),
    "job-report": Picture(_job_report, height=1500),
    "ui-overview": Picture(_show("/", overview.show_overview), height=900),
    "ui-clusters": Picture(_show("/clusters", cluster_views.list_clusters)),
    "ui-other-clusters": Picture(_show("/other-clusters", cluster_views.list_other_clusters)),
    "ui-other-cluster": Picture(
        _show(
            "/other-clusters/slurm/weather", _show_other_cluster, engine="slurm", name="weather"
        )
    ),
    "ui-cluster": Picture(_show("/clusters/slurm/flights", _show_cluster), has_dark=True),
    "ui-jobs": Picture(
        _show("/jobs", job_list_view.list_jobs, "pipeline=flights"), height=900
    ),
    "ui-job": Picture(
        _show(f"/jobs/{picture_data.JOB}", job_view.show_job, id=picture_data.JOB),
        has_dark=True, height=1640,
    ),
    "ui-artifacts": Picture(_artifacts_page, has_dark=True),
    "ui-artifact": Picture(_artifact_page),
    "ui-records": Picture(_show("/records", record_views.list_records)),
    "ui-record": Picture(
        _show(
            f"/records/{picture_data.RECORD}", record_views.show_record, name=picture_data.RECORD
        ),
        height=1500,
    ),
    "ui-schedules": Picture(_show("/schedules", schedule_view.list_schedules)),
    "ui-pools": Picture(_show("/pools", sizing_views.list_pools)),
    "ui-size": Picture(
        _show("/size", sizing_views.size_cluster, "data=100GB&operation=groupby&tasks=light")
    ),
}  # fmt: skip


def make_page(name: str, folder: Path, style: str = "", attributes: str = "") -> str:
    """Return the page of a picture: the page itself, or one with the result."""
    shown = PICTURES[name].make(folder).replace(str(folder), _FOLDER)
    if shown.startswith("<!DOCTYPE"):
        return shown
    return _PAGE.format(style=style, attributes=attributes, body=shown)


def take_picture(page: str, scheme: str, target: Path, height: int = _HEIGHT) -> None:
    """Write a page as Chromium shows it, without the empty space around it."""
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "page.html")
        source.write_text(page, encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile", f"--window-size={_WIDTH},{_HEIGHT}",
            f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
            f"--screenshot={folder}/shot.png", source.as_uri(),
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium has no sandbox for root
        subprocess.run(command, check=True, timeout=120, capture_output=True)  # noqa: S603
        picture = Image.open(Path(folder, "shot.png")).convert("RGB")
    ground = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    drawn = ImageChops.difference(picture, ground).getbbox()
    if drawn is None:
        raise SystemExit(f"the picture for {target.name} is empty")
    _, _, right, bottom = drawn
    picture = picture.crop((0, 0, min(_WIDTH, right + 12), min(height, bottom + 12)))
    save_picture(picture, target)


def save_picture(picture: Image.Image, target: Path) -> None:
    """Write a picture with few colors."""
    colors = picture.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colors.save(target, optimize=True)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("--lab", type=Path, help="folder for pages with the themes of JupyterLab")
    given = parser.parse_args()
    unknown = set(given.names) - PICTURES.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PICTURES)}")
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in given.names or PICTURES:
        picture = PICTURES[name]
        with tempfile.TemporaryDirectory() as folder:
            page = make_page(name, Path(folder))
            for theme in picture.themes:
                target = STATIC / f"{name}-{theme}.png"
                take_picture(page, theme, target, picture.height)
            for theme, scheme in (("dark", "light"), ("light", "dark")) if given.lab else ():
                page = make_page(name, Path(folder), *_LAB[theme])
                given.lab.mkdir(exist_ok=True)
                take_picture(page, scheme, given.lab / f"{name}-{theme}.png", picture.height)


if __name__ == "__main__":
    main()
