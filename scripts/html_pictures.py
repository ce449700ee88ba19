"""Take pictures of results as a notebook shows them: ``python -m scripts.html_pictures``.

Needs Chromium. Writes ``html-<name>-light.png`` and ``html-<name>-dark.png`` in ``docs/_static``,
and ``ui-<name>-light.png`` and ``ui-<name>-dark.png`` of pages of ``hyperplane ui``;
with ``--lab FOLDER`` also pages with a theme of JupyterLab other than that of the browser.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
from PIL import Image, ImageChops

import hyperplane
from hyperplane.clusters.records import ClusterRecord
from hyperplane.history import (
    PlanSummary,
    RunRecord,
    RunTimeline,
    TaskGroupTimes,
    WorkerTimeline,
    WorkerUsage,
)
from hyperplane.jobs import Artifact, Job, Pipeline, Step
from hyperplane.jobs.artifact_files import identify
from hyperplane.jobs.artifact_html import render_artifacts
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import render_job, render_jobs
from hyperplane.jobs.store.artifact_records import find_suffix, kind_of_file
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS, Attempt
from hyperplane.storage.result import SaveResult
from hyperplane.ui.application import read_style
from hyperplane.ui.artifact_view import describe_artifacts
from hyperplane.ui.cluster_views import describe_cluster
from hyperplane.ui.job_view import describe_job
from hyperplane.ui.live_cluster import LiveCluster
from hyperplane.ui.view import PageRequest

STATIC = Path(__file__).resolve().parents[1] / "docs" / "_static"
_WIDTH, _HEIGHT = 1180, 1600
#: Colors of the picture that remain; text is anti-aliased in grays.
_COLORS = 128
#: Seconds since 1970 of the events of the sample jobs.
_BEGAN = 1_780_000_000.0
_LOG = """\
read 120 of 120 files of /data/flights
Traceback (most recent call last):
  File "/home/me/flights/fit.py", line 31, in <module>
    model.fit(frame[FEATURES], frame["delay"])
ValueError: Input X contains NaN.
"""
#: Theme of the browser -> value of Chromium's setting.
_SCHEMES = {"dark": 0, "light": 1}
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>:root{{color-scheme:light dark}}
body{{margin:12px;font:14px "DejaVu Sans",sans-serif;{style}}}</style><body {attributes}>{body}"""
_LAB = {
    "dark": ("background:#111;color:#eee;--jp-ui-font-color1:#eee", 'data-jp-theme-light="false"'),
    "light": ("background:#fff;color:#111;--jp-ui-font-color1:#111", 'data-jp-theme-light="true"'),
}


def make_jobs(folder: Path) -> tuple[Job, list[Attempt], list[Job]]:
    """Return a job that has failed, its attempts, and a list of jobs."""
    (folder / "report.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    (folder / "fit.log").write_text(_LOG)

    def command(name: str, *before: str, **options: object) -> Step:
        return Step(name=name, kind="command", argv=("true",), depends_on=before, **options)

    steps = [
        command("load"),
        command("clean", "load", chunks=12),
        command("weather"),
        command("join", "clean", "weather"),
        command("fit", "join"),
        command("score", "join"),
        Step(name="report", kind="notebook", path="report.ipynb", output_path="report.ipynb",
             depends_on=("fit", "score")),
    ]  # fmt: skip
    job = new_job(Pipeline.from_steps("flights", steps, root=str(folder)), name="nightly")
    job = replace(
        job, id="5f0c2a9e-7d41-4b1f-9a53-0c6d1f2b8e77", folder=str(folder), status=FAILED,
        reason="step fit: exit code 1: ValueError: Input X contains NaN.", machine="me@host",
        submitted=_BEGAN, started=_BEGAN + 1, ended=_BEGAN + 754,
    )  # fmt: skip

    def attempt(step: str, begin: float, end: float, status: str = DONE, **fields: int) -> Attempt:
        reason = "exit code 1: ValueError: Input X contains NaN." if status == FAILED else ""
        return Attempt(
            job.id, step, fields.get("chunk", -1), fields.get("number", 1), status,
            _BEGAN + begin, _BEGAN + end, reason=reason, log=f"{step}.log",
        )  # fmt: skip

    attempts = [
        attempt("load", 1, 42),
        attempt("weather", 1, 9.5),
        *(
            attempt("clean", 42 + 20 * number, 75 + 20 * number, chunk=number)
            for number in range(12)
        ),
        attempt("join", 300, 620),
        attempt("score", 620, 688),
        attempt("fit", 620, 671, FAILED),
        attempt("fit", 700, 754, FAILED, number=2),
    ]
    jobs = [
        replace(job, id="c1e07b52-", name="nightly", status=IN_PROGRESS, ended=0.0, reason="",
                dashboard="http://127.0.0.1:8787/status", submitted=_BEGAN + 86400,
                started=_BEGAN + 86401),
        job,
        replace(job, id="93d7f6a0-", status=DONE, reason="", submitted=_BEGAN - 86400,
                started=_BEGAN - 86399, ended=_BEGAN - 85200),
    ]  # fmt: skip
    return job, attempts, jobs


def make_artifacts(job: Job, folder: Path) -> list[Artifact]:
    """Return what the steps of a job have saved, with the files."""
    rows = {
        "carrier": ["UA", "AA", "B6", "DL", "EV"],
        "flights": [58_665, 32_729, 54_635, 48_110, 54_173],
        "delay": [12.1, 8.6, 13.0, 9.3, 19.9],
    }
    frame = pd.DataFrame(rows)
    frame.to_parquet(folder / "delays.parquet")
    axes = frame.plot.bar("carrier", "delay", legend=False, ylabel="minutes", figsize=(5, 2.4))
    axes.figure.savefig(folder / "delays.png", bbox_inches="tight")
    (folder / "summary.txt").write_text("12.6 minutes on average\n")
    found = []
    for number, (name, step) in enumerate(
        {"delays.parquet": "join", "delays.png": "score", "summary.txt": "score"}.items()
    ):
        path = str(folder / name)
        identity = identify(path)
        size = None if identity is None else identity.size
        count = len(frame) if number == 0 else None
        found.append(Artifact(
            job.id, step, -1, 1, name, kind_of_file(name), find_suffix(name), path, size, count,
            created=_BEGAN + 600 + 20 * number, identity=str(identity or ""),
        ))  # fmt: skip
    return found


def make_bodies(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield names of pictures and their HTML."""
    import dask.array as da

    job, attempts, jobs = make_jobs(folder)
    shown = "/home/me/flights"
    yield "job", render_job(job, attempts).replace(str(folder), shown)
    artifacts = make_artifacts(job, folder)
    yield "artifacts", render_artifacts(artifacts).replace(str(folder), shown)
    yield "jobs", render_jobs(jobs, _BEGAN + 86700).replace(str(folder), shown)
    yield "advice", hyperplane.size_cluster("100GB", "groupby")._repr_html_()
    plan = hyperplane.plan_cluster(num_workers=2, pool="16_16", engine="local", name="flights")
    saved = SaveResult(f"{shown}/delays.parquet", 24, 5_800_000, 310_000_000, 6, seconds=12.4)
    yield "plan", f"{plan._repr_html_()}<hr>{saved._repr_html_()}"
    layout = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=2, ram_gb_per_proc=1, engine="local", local_fit="exact"
    )
    numbers = da.random.default_rng(0).random((8000, 8000), chunks=(1000, 8000))
    turned = numbers.rechunk((8000, 1000))
    forecast = hyperplane.forecast(turned.std(axis=0).max(), layout, history=False)
    yield "forecast", forecast._repr_html_()


def make_cluster() -> tuple[ClusterRecord, LiveCluster]:
    """Return a running cluster of two nodes, and what it takes."""
    workers = [
        [min(size, 2_300_000_000) for size in range(200_000_000, 2_900_000_000, 24_000_000)],
        [1_500_000_000 + 400_000_000 * (part // 9 % 3) for part in range(112)],
        [1_200_000_000 + 300_000_000 * (part // 14 % 2) for part in range(112)],
        [1_400_000_000 + 200_000_000 * (part // 7 % 4) for part in range(112)],
    ]
    timeline = RunTimeline(
        _BEGAN, 60.0, [sum(sizes) for sizes in zip(*workers, strict=False)],
        [0] * 100 + [900_000_000] * 12, [4] * 112,
        [
            WorkerTimeline(str(number), memory, *([[(5600, 6000)], [(5200, 6720)]] * (not number)))
            for number, memory in enumerate(workers)
        ],
        [
            TaskGroupTimes("read-parquet", 40, 2900, 240, 0, 9800),
            TaskGroupTimes("assign", 300, 3100, 240, 0, 1900),
            TaskGroupTimes("groupby-aggregate", 3100, 6600, 96, 0, 12000),
        ],
    )  # fmt: skip
    plan = PlanSummary(
        engine="slurm", framework="dask", pool="16_16", nodes=2, max_nodes=2, nprocs=2, nthreads=7,
        ram_per_proc=2_500_000_000, spill=0.7, pause=0.8, terminate=0.95, budget="5 USD",
    )  # fmt: skip
    run = RunRecord(
        name="flights", cluster="flights", started=_BEGAN, ended=_BEGAN + 6720, plan=plan,
        timeline=timeline, workers=(
            WorkerUsage("0", 7, plan.ram_per_proc, 2_300_000_000, 3_200_000_000, 900_000_000, 400.0,
                        1520.0, cpu_seconds=5900.0),
            *(WorkerUsage(str(number), 7, plan.ram_per_proc, max(workers[number]),
                          cpu_seconds=6100.0 - 90 * number) for number in (1, 2, 3)),
        ),
    )  # fmt: skip
    record = ClusterRecord(
        "flights", "slurm", "tls://10.1.0.7:8786", "http://127.0.0.1:8787/flights/status", 4711,
        1.0, 4, 28, 10.0,
    )  # fmt: skip
    return record, LiveCluster(run, "USD", 0.24)


def make_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield names of pictures and pages of ``hyperplane ui``, with their style."""
    job, attempts, _ = make_jobs(folder)
    record, figures = make_cluster()
    artifacts = make_artifacts(job, folder)
    picture = base64.b64encode((folder / "delays.png").read_bytes()).decode()
    listed = describe_artifacts(job, artifacts[::-1], "artifacts 1 to 3, the newest first")
    views = {
        "artifacts": (f"/jobs/{job.id}/artifacts", listed),
        "job": (f"/jobs/{job.id}", describe_job(job, attempts, True, _BEGAN + 800)),
        "cluster": ("/clusters/slurm/flights", describe_cluster(record, figures, True)),
    }
    link, script = '<link rel="stylesheet" href="/style.css"/>', '<script src="/live.js" defer="">'
    style = f"<style>{read_style()}</style>"
    for name, (path, view) in views.items():
        page = view.render_page(PageRequest(path, ""))
        page = page.replace(link, style).replace(script, "<script>")
        page = re.sub(r'src="/jobs/[^"]*"', f'src="data:image/png;base64,{picture}"', page)
        yield name, page.replace(str(folder), "/home/me/flights")


def take_picture(page: str, scheme: str, target: Path) -> None:
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
    picture = picture.crop((0, 0, min(_WIDTH, right + 12), min(_HEIGHT, bottom + 12)))
    colors = picture.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colors.save(target, optimize=True)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, help="folder for pages with the themes of JupyterLab")
    lab = parser.parse_args().lab
    with tempfile.TemporaryDirectory() as folder:
        bodies = dict(make_bodies(Path(folder)))
        pages = dict(make_pages(Path(folder)))
    for name, page in pages.items():
        for scheme in _SCHEMES:
            take_picture(page, scheme, STATIC / f"ui-{name}-{scheme}.png")
    for name, body in bodies.items():
        for scheme in _SCHEMES:
            page = _PAGE.format(style="", attributes="", body=body)
            take_picture(page, scheme, STATIC / f"html-{name}-{scheme}.png")
        for theme, scheme in (("dark", "light"), ("light", "dark")) if lab else ():
            style, attributes = _LAB[theme]
            page = _PAGE.format(style=style, attributes=attributes, body=body)
            lab.mkdir(exist_ok=True)
            take_picture(page, scheme, lab / f"{name}-{theme}.png")


if __name__ == "__main__":
    main()
