"""Forecasts of steps before their first attempt, with a short program in place of the forecast."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace

import pytest
from job_cases import bash, is_alive, wait_until

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs import Pipeline
from hyperplane.jobs.execution import forecast_program, step_forecaster
from hyperplane.jobs.execution.job_folder import is_in_use
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.execution.step_forecast import StepForecast
from hyperplane.jobs.execution.step_forecaster import StepForecaster, read_forecast
from hyperplane.jobs.execution.step_sizes import StepSizes
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.store.job_records import WorkUnit
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission.submission_snapshot import load_snapshot, save_snapshot
from hyperplane.platforms.local import machine

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("published_pools")]
GB = 10**9
#: It leaves what it was started with, and the result of a forecast.
WRITES = """
import json, os, pathlib, sys
request = json.loads(pathlib.Path(sys.argv[1]).read_text())
told = {"request": request, "folder": os.getcwd(), "environment": dict(os.environ)}
calls = pathlib.Path(__file__).with_name("calls")
with calls.open("a") as opened:
    print(json.dumps(told), file=opened)
print("loading data")
result = {"target": "?", "node": {"2": 4000000000}, "ram_per_proc": 1400000000, "high": 10**9}
pathlib.Path(sys.argv[2]).write_text(json.dumps({**result, **CHANGES}))
"""


class Case:
    """A job with one step, and what forecasts it."""

    def __init__(self, folder, runner=None, **options):
        (folder / "data.py").touch()
        fields = {
            "resources": {"pool": "auto"}, "forecast": "data.py:totals", "env": {"COLOR": "red"},
            "cluster": {"pool": "auto", "nprocs": 2},
        }  # fmt: skip
        self.step = bash("fit", "true", **{**fields, **options})
        self.job = new_job(
            Pipeline.from_steps("nightly", [self.step], root=folder), parameters={"year": "1990"}
        )
        save_snapshot(self.job, {}, {})
        self.store = JobStore(f"sqlite:///{folder}/jobs.db")
        self.folder = folder
        (self.step,) = self.job.pipeline.steps
        self.runner = runner or LocalRunner({}, {})
        self.start()

    def start(self):
        """Begin as a new supervisor does."""
        snapshot = load_snapshot(self.job)
        self.sizes = StepSizes(self.store, self.job, snapshot)
        self.sizes.add(self.step, read_forecast(self.job, self.step))
        capacity = ResourceAllocator(cores=2, memory=8e9, slots=4)
        environment = {name: text for name, text in os.environ.items() if name != "ABSENT"}
        self.forecaster = StepForecaster(
            self.job, self.runner, capacity, environment, snapshot, self.sizes
        )

    def forecast(self, *chunks):
        """Forecast for several chunks at once."""

        async def run():
            units = [WorkUnit("fit", chunk, len(chunks)) for chunk in chunks] or [WorkUnit("fit")]
            await asyncio.gather(*(self.forecaster.forecast(self.step, unit) for unit in units))

        asyncio.run(run())
        return self.sizes.resize(self.step)

    @property
    def reasons(self):
        return "\n".join(self.sizes.reasons("fit"))

    @property
    def calls(self):
        file = self.folder / "calls"
        return list(map(json.loads, file.read_text().splitlines())) if file.exists() else []


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the program that takes the place of the forecast."""
    for name in ("TOKEN", "ABSENT"):  # a submission needs all secrets
        monkeypatch.setenv(name, "swordfish-7")

    def write(text=WRITES, **changes):
        file = tmp_path / "program.py"
        file.write_text(text.replace("CHANGES", repr(changes)))
        monkeypatch.setattr(step_forecaster, "_PROGRAM", file)

    write()
    return write


@pytest.mark.usefixtures("program")
def test_a_step_is_forecast_once_in_its_own_environment(tmp_path):
    case = Case(tmp_path, chunks=2, secrets=("TOKEN",))
    assert case.sizes.reasons("fit")[0].endswith("when the step starts")
    sized = case.forecast(0, 1)
    (call,) = case.calls
    assert call["request"] == {
        "target": f"{tmp_path}/data.py:totals",
        "cluster": {"pool": "auto", "nprocs": 2},
        "threads": [machine.cores()],
    }
    variables = call["environment"]
    assert (variables["COLOR"], variables["YEAR"]) == ("red", "1990")
    assert (variables["HYPERPLANE_SHARD_INDEX"], variables["CHUNK_ID"]) == ("0", "0")
    assert variables["TOKEN"] == "swordfish-7"
    assert "HYPERPLANE_CLUSTER" not in variables
    assert call["folder"] == str(tmp_path)
    assert case.sizes.pool_of(sized) == "4_32"
    assert sized.cluster["ram_gb_per_proc"] == 1.4
    assert "resources.pool: auto is 4_32: up to 4 GB in all processes" in case.reasons
    assert case.forecaster.take_output(WorkUnit("fit", 0, 2)) == ["loading data"]
    assert case.forecaster.take_output(WorkUnit("fit", 0, 2)) == []
    assert case.forecaster.take_output(WorkUnit("fit", 1, 2)) == []
    assert not is_in_use(case.job)


@pytest.mark.usefixtures("program")
def test_a_later_supervisor_has_the_forecast_and_a_resumed_job_makes_another(tmp_path):
    case = Case(tmp_path)
    first = case.forecast()
    case.start()
    assert case.sizes.resize(case.step) == first
    assert case.forecast() == first
    assert len(case.calls) == 1
    case.job = replace(case.job, resumed=case.job.submitted + 9)
    case.start()
    assert case.forecast() == first
    assert len(case.calls) == 2
    forecast_file = case.job.folder_path / "steps" / "000-fit" / "forecast.json"
    for damaged in ("{", "[]", '{"requested": 1}', '{"requested": 1, "forecast": "{}"}'):
        forecast_file.write_text(damaged.replace("1", str(case.job.requested), 1))
        assert read_forecast(case.job, case.step) is None


def test_other_runners_are_asked_for_the_threads_of_the_pools(tmp_path, program):
    class Elsewhere(LocalRunner):
        uses_this_machine = False

    program(node={4: 40 * GB, 16: 100 * GB})
    case = Case(tmp_path, Elsewhere({}, {}), cluster=None)
    sized = case.forecast()
    threads = case.calls[0]["request"]["threads"]
    assert threads[0] == 3
    assert threads[-1] == 94
    assert case.sizes.pool_of(sized) == "8_64"
    without = Case(tmp_path, resources={"cores": 1})
    without.forecast()
    assert without.calls[-1]["request"]["threads"] == []


def test_a_program_that_fails_leaves_the_default_pool(tmp_path, program):
    program("print('no such table'); raise SystemExit(3)")
    case = Case(tmp_path)
    sized = case.forecast()
    assert case.sizes.pool_of(sized) == "16_16"
    assert "the forecast of data.py:totals failed (exit code 3: no such table)" in case.reasons
    assert case.forecaster.take_output(WorkUnit("fit")) == ["no such table"]
    case.forecast()
    assert len(case.sizes.reasons("fit")) == 2


def test_a_result_that_is_none_and_a_failure_with_a_secret(tmp_path, program):
    program(node=[1])
    case = Case(tmp_path, secrets=("TOKEN",))
    case.forecast()
    assert "failed (its process ended before there was a result)" in case.reasons
    program(failure="KeyError: swordfish-7\n  twice", node={}, ram_per_proc=0)
    case.start()
    (case.job.folder_path / "steps" / "000-fit" / "forecast.json").unlink()
    case.start()
    case.forecast()
    assert "failed (KeyError: *********** twice)" in case.reasons


def test_a_forecast_that_takes_too_long_is_ended(tmp_path, program, monkeypatch):
    mark = tmp_path / "pid"
    program(f"import os, time; open('{mark}', 'w').write(str(os.getpid())); time.sleep(600)")
    monkeypatch.setattr(step_forecaster, "FORECAST_SECONDS", 0.7)
    case = Case(tmp_path)
    case.forecast()
    assert "failed (it exceeded its limit of 0.7 s)" in case.reasons
    if mark.exists():  # on a busy machine it may have had no time to begin
        wait_until(lambda: not is_alive(int(mark.read_text())))


def test_a_cancelled_job_ends_the_forecast(tmp_path, program):
    mark = tmp_path / "pid"
    program(f"import os, time; open('{mark}', 'w').write(str(os.getpid())); time.sleep(600)")
    case = Case(tmp_path)

    async def cancel():
        running = asyncio.ensure_future(case.forecaster.forecast(case.step, WorkUnit("fit")))
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.02)
        assert is_in_use(case.job)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    wait_until(lambda: not is_alive(int(mark.read_text())))
    assert case.sizes.lacks_forecast("fit")


def test_the_forecast_of_a_supervisor_that_was_killed_is_ended_and_made_again(tmp_path, program):
    mark = tmp_path / "pid"
    program(f"import os, time; open('{mark}', 'w').write(str(os.getpid())); time.sleep(600)")
    case = Case(tmp_path)

    async def continue_job():
        first = asyncio.ensure_future(case.forecaster.forecast(case.step, WorkUnit("fit")))
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.02)
        program()
        case.start()
        await case.forecaster.end_earlier()
        await case.forecaster.forecast(case.step, WorkUnit("fit"))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(continue_job())
    wait_until(lambda: not is_alive(int(mark.read_text())))
    assert case.sizes.pool_of(case.sizes.resize(case.step)) == "4_32"


@pytest.mark.usefixtures("program")
def test_without_a_secret_or_folder_nothing_is_run(tmp_path):
    case = Case(tmp_path, secrets=("ABSENT",))
    case.forecast()
    assert "failed (secret ABSENT not found)" in case.reasons
    (tmp_path / "gone").mkdir()
    case = Case(tmp_path, working_dir="gone")
    (tmp_path / "gone").rmdir()
    case.forecast()
    assert "its process cannot be started: No such file or directory" in case.reasons
    assert case.calls == []


@pytest.mark.usefixtures("program")
def test_a_pool_that_may_exceed_the_budget_is_not_used(tmp_path):
    class Priced(LocalRunner):
        def find_budget_faults(self, job):
            (step,) = job.pipeline.steps
            is_more = step.resources.ram_gb > 10
            return [Fault("hyperplane.runners.here.budget", "'1 USD'", "more")] * (not is_more)

    case = Case(tmp_path, Priced({}, {}))
    sized = case.forecast()
    assert case.sizes.pool_of(sized) == "16_16"
    assert "its pool is not used: hyperplane.runners.here.budget = '1 USD': " in case.reasons
    assert "expected more)" in case.reasons
    assert isinstance(read_forecast(case.job, case.step), StepForecast)

    class Unknown(LocalRunner):
        def find_budget_faults(self, job):
            raise RequestError([Fault("hyperplane.runners.here.price", "nothing", "a price")])

    (case.job.folder_path / "steps" / "000-fit" / "forecast.json").unlink()
    case.runner = Unknown({}, {})
    case.start()
    assert case.sizes.pool_of(case.forecast()) == "16_16"
    assert "hyperplane.runners.here.price is not set; expected a price" in case.reasons


def test_the_result_of_a_forecast_has_no_part_of_a_secret(tmp_path, monkeypatch):
    secret = "swordfish-" + "0123456789" * 30  # longer than a reason, which ends within it
    monkeypatch.setenv("HYPERPLANE_CUSTOM_SECRET_KEY_TOKEN", secret)
    (tmp_path / "data.py").write_text(
        "import os\ntoken = os.environ.pop('HYPERPLANE_CUSTOM_SECRET_KEY_TOKEN')\n"
        "raise ValueError(token)"
    )
    request, result = tmp_path / "forecast.request", tmp_path / "forecast.result"
    target = f"{tmp_path}/data.py:totals"
    request.write_text(json.dumps({"target": target, "cluster": None, "threads": [1]}))
    forecast_program.main(request, result)
    assert "swordfish" not in result.read_text()
    found = StepForecast.from_json(result.read_text())
    assert "line 3: ValueError: ****" in found.failure
    assert found.failure.endswith("*****")


@pytest.mark.parametrize(
    ("cluster", "failure"),
    [
        (
            None,
            "expected a name that data.py defines; the collections of this program are: sums",
        ),
        ({"pool": "auto", "nprocs": 0}, "nprocs = 0: expected at least 1"),
    ],
    ids=["name", "cluster"],
)
def test_a_fault_of_the_program_or_its_cluster_says_what_is_allowed(tmp_path, cluster, failure):
    (tmp_path / "data.py").write_text("import dask.array as da\nsums = da.ones(4).sum()")
    request, result = tmp_path / "forecast.request", tmp_path / "forecast.result"
    target = f"{tmp_path}/data.py:totals"
    request.write_text(json.dumps({"target": target, "cluster": cluster, "threads": [1]}))
    forecast_program.main(request, result)
    assert StepForecast.from_json(result.read_text()).failure == failure
