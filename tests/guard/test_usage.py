"""The figures of a run, from the state of a scheduler, without processes."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest

from hyperplane.guard import usage
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.memory_explainer import MemoryExplainer
from hyperplane.guard.memory_report import TOPIC
from hyperplane.guard.usage import MEMORY_TOPIC, UsageMonitor
from hyperplane.history import PlanSummary, RunRecord, TaskUsage, WorkerUsage

GB = 10**9


class Clock:
    """Clock of the monitor, which a test moves."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(usage, "time", clock)
    return clock


class Task:
    """A task of the scheduler."""

    def __init__(self, name, nbytes=-1, dependencies=()):
        self.prefix = SimpleNamespace(name=name)
        self.group = SimpleNamespace(name=f"{name}-1f")
        self.nbytes = nbytes
        self.dependencies = set(dependencies)


class Worker:
    """A worker as the scheduler sees it."""

    def __init__(self, name="0", memory=0, spilled=0, limit=2 * GB, status="running", threads=2):
        self.name, self.address = name, f"tcp://{name}"
        self.metrics = {"memory": memory, "spilled_bytes": {"memory": 0, "disk": spilled}}
        self.memory_limit, self.nthreads = limit, threads
        self.status = SimpleNamespace(name=status)
        self.executing, self.has_what = {}, {}
        self.nbytes = 0

    def use(self, memory, spilled=0):
        self.metrics = {"memory": memory, "spilled_bytes": {"memory": 0, "disk": spilled}}


class Scheduler:
    """A scheduler with workers and tasks."""

    def __init__(self, *workers):
        self.handlers, self.tasks, self.events, self.plugins = {}, {}, [], {}
        self.workers = {worker.address: worker for worker in workers}
        self.total_memory = sum(worker.memory_limit for worker in workers)

    def log_event(self, topic, message):
        self.events.append((topic, message))


@pytest.fixture
def watch(clock):
    """Return a function that starts a monitor of a scheduler with some workers."""
    monitors = []

    def watch(*workers, **options):
        async def start():
            monitor = UsageMonitor(**{"spill": 0.7, **options})
            await monitor.start(Scheduler(*workers))
            await monitor.close()  # the test calls `measure` itself
            return monitor

        monitors.append(asyncio.run(start()))
        return monitors[-1]

    return watch


def measure(monitor, clock, times=1, seconds=2.0):
    for _ in range(times):
        clock.now += seconds
        monitor.measure()


def only_worker(monitor):
    (worker,) = monitor.usage()["workers"]
    return WorkerUsage(**worker)


def test_the_topic_is_that_of_the_reports():
    assert MEMORY_TOPIC == TOPIC


def test_a_report_has_the_plan_and_figures_of_a_record(watch):
    plan = PlanSummary(engine="local", pool="16_16", nodes=2, nprocs=2, nthreads=3)
    report = watch(Worker(memory=GB), plan=plan.model_dump()).report()
    assert PlanSummary(**report.pop("plan")) == plan
    assert report.pop("ending") == report.pop("fix") == ""
    assert report.pop("limit") == 2 * GB
    RunRecord(name="a", cluster="a", started=0, ended=1, **report)
    assert watch().report()["plan"] == {}


def test_peaks_pauses_and_spilled_bytes_of_a_worker(watch, clock):
    worker = Worker(memory=GB)
    monitor = watch(worker)
    measure(monitor, clock)
    worker.use(int(1.5 * GB), spilled=GB)
    worker.status.name = "paused"
    measure(monitor, clock, times=2)
    worker.use(GB // 2, spilled=GB // 2)
    worker.status.name = "running"
    measure(monitor, clock)
    found = only_worker(monitor)
    assert (found.limit, found.nthreads) == (2 * GB, 2)
    assert (found.peak, found.demand, found.spilled) == (int(1.5 * GB), int(2.5 * GB), GB)
    assert (found.paused_seconds, found.spilling_seconds) == (4, 6)


def test_a_suspended_machine_adds_no_hours(watch, clock):
    monitor = watch(Worker(memory=GB, status="paused"))
    measure(monitor, clock, seconds=7200)
    assert only_worker(monitor).paused_seconds == 3 * usage.INTERVAL


def test_figures_of_the_tasks_of_an_operation(watch):
    monitor = watch(Worker())
    parts = [Task("read", nbytes=10), Task("read", nbytes=30)]
    monitor.scheduler.tasks = {"sum": Task("sum", dependencies=parts), "bad": Task("sum")}
    ended = [{"action": "transfer", "start": 0, "stop": 9}]
    ended += [{"action": "compute", "start": 10.0, "stop": 12.5}]
    monitor.transition("sum", "processing", "memory", nbytes=7, startstops=ended, worker="w")
    monitor.transition("bad", "processing", "erred", exception=None)
    monitor.transition("sum", "memory", "released")
    monitor.transition("unknown", "processing", "memory", nbytes=1)
    (found,) = monitor.usage()["tasks"]
    assert TaskUsage(**found) == TaskUsage(
        name="sum",
        count=2,
        failed=1,
        seconds=2.5,
        longest=2.5,
        output=7,
        largest_output=7,
        input=40,
        largest_input=40,
    )


def test_memory_of_a_process_while_an_operation_runs(watch, clock):
    worker = Worker(memory=GB)
    worker.executing = {Task("join"): 1.0}
    monitor = watch(worker)
    measure(monitor, clock)
    worker.executing = {}
    worker.use(2 * GB)
    measure(monitor, clock)
    assert [task["memory"] for task in monitor.usage()["tasks"]] == [GB]


def test_many_operations_are_counted_together(watch, monkeypatch):
    monkeypatch.setattr(usage, "MAX_OPERATIONS", 2)
    monitor = watch(Worker())
    for number in range(5):
        monitor.scheduler.tasks[number] = Task(f"name {number}")
        monitor.transition(number, "processing", "memory", nbytes=1, startstops=[])
    counts = {task["name"]: task["count"] for task in monitor.usage()["tasks"]}
    assert counts == {"name 0": 1, "name 1": 1, usage.OTHER_OPERATIONS: 3}


def test_workers_that_have_left_are_counted_together(watch, monkeypatch):
    monkeypatch.setattr(usage, "MAX_WORKERS", 4)
    first = Worker("first", memory=GB)
    monitor = watch(first)
    for number in range(40):
        worker = Worker(f"adapted-{number}", memory=number)
        monitor.scheduler.workers = {first.address: first, worker.address: worker}
        monitor.add_worker(monitor.scheduler, worker.address)
        monitor.measure()
        monitor.log_event(TOPIC, report(worker.name, peak=number))  # ended; it does not come back
    found = {figures["name"]: figures for figures in monitor.usage()["workers"]}
    assert len(found) <= 5
    assert {"first", "adapted-39", usage.OTHER_WORKERS} <= found.keys()
    assert sum(figures["restarts"] for figures in found.values()) == 40
    others = found[usage.OTHER_WORKERS]
    assert others["causes"] == {"out of memory": others["restarts"]}
    assert (others["limit"], others["nthreads"]) == (2 * GB, 2)
    assert others["peak"] <= 39
    assert monitor._expected.keys() <= found.keys()


def test_connected_workers_are_counted_separately(watch, monkeypatch):
    monkeypatch.setattr(usage, "MAX_WORKERS", 4)
    monitor = watch(*(Worker(str(number)) for number in range(9)))
    assert len(monitor.usage()["workers"]) == 9


def test_what_is_remembered_of_workers_without_memory_is_bounded(watch, clock, monkeypatch):
    monkeypatch.setattr(usage, "MAX_OPERATIONS", 2)
    warnings = []
    monitor = watch(Worker(), warn=warnings.append)
    for number in range(5):
        worker = Worker(f"killed-{number}", memory=2 * GB, status="paused")
        worker.executing = {Task(f"name {number}"): 1.0}
        monitor.scheduler.workers = {worker.address: worker}
        measure(monitor, clock, times=5)
        del monitor.scheduler.workers[worker.address]
        monitor.remove_worker(monitor.scheduler, worker.address, stimulus_id="x")
    assert len(warnings) == len(monitor._pressure.issued) == 3
    assert monitor._pressure.since == {}


def restart(monitor, name="0"):
    again = Worker(name)
    monitor.add_worker(monitor.scheduler, again.address)


def test_the_first_start_of_a_worker_is_no_restart(watch):
    monitor = watch()
    new = Worker()
    monitor.scheduler.workers[new.address] = new
    monitor.add_worker(monitor.scheduler, new.address)
    assert only_worker(monitor).restarts == 0


def report(name="0", **others):
    return {"name": name, "peak": int(1.9 * GB), "spilled": GB, "running": (), **others}


def test_a_report_of_lacking_memory_explains_the_restart_after_it(watch):
    monitor = watch(Worker(memory=GB))
    monitor.log_event(TOPIC, report(running=({"prefix": "join", "key": "join-1"},)))
    restart(monitor)
    found = only_worker(monitor)
    assert (found.restarts, found.causes) == (1, {"out of memory": 1})
    assert (found.peak, found.demand) == (int(1.9 * GB), int(2.9 * GB))
    assert monitor.usage()["tasks"][0]["memory"] == int(1.9 * GB)


def test_a_late_report_explains_the_restart_before_it(watch):
    monitor = watch(Worker())
    restart(monitor)
    assert only_worker(monitor).causes == {"other": 1}
    monitor.log_event(TOPIC, report())
    found = only_worker(monitor)
    assert (found.restarts, found.causes) == (1, {"out of memory": 1})


def test_causes_of_restarts_are_counted_separately(watch):
    monitor = watch(Worker())
    monitor.restart(monitor.scheduler)
    restart(monitor)
    restart(monitor)
    monitor.log_event("another topic", report())
    found = only_worker(monitor)
    assert (found.restarts, found.causes) == (2, {"client": 1, "other": 1})


def test_a_paused_worker_is_warned_of_once_with_its_operation(watch, clock):
    texts = []
    worker = Worker(name="w7", memory=int(1.7 * GB), status="paused")
    worker.executing = {Task("read-parquet"): 5.0, Task("sum"): 1.0}
    monitor = watch(worker, warn=texts.append)
    measure(monitor, clock, times=2)
    assert texts == []
    measure(monitor, clock, times=20)
    (text,) = texts
    assert "worker w7 is paused" in text
    assert "at 1.7 of 2 GB" in text
    assert "'read-parquet' is running" in text
    assert "nthreads=1 (now 2), ram_gb_per_proc=2.9" in text


def test_more_memory_than_a_grown_worker_has_is_proposed(watch, clock):
    texts = []
    worker = Worker(memory=int(1.7 * GB), status="paused", limit=4 * GB)
    monitor = watch(worker, warn=texts.append)
    measure(monitor, clock, times=6)
    assert "at 1.7 of 4 GB" in texts[0]
    assert "ram_gb_per_proc=6.7" in texts[0]


def test_a_limit_that_grew_shortly_before_the_end_of_a_process_is_kept(watch):
    worker = Worker(memory=GB)
    monitor = watch(worker)
    worker.memory_limit = 3 * GB
    del monitor.scheduler.workers[worker.address]
    monitor.remove_worker(monitor.scheduler, worker.address)
    (found,) = monitor.usage()["workers"]
    assert (found["first_limit"], found["limit"]) == (2 * GB, 3 * GB)
    again = Worker(memory=GB, limit=2 * GB)  # it was lowered for others meanwhile
    monitor.scheduler.workers[again.address] = again
    monitor.add_worker(monitor.scheduler, again.address)
    assert only_worker(monitor).limit == 3 * GB


def test_results_that_fill_the_memory_are_named(watch, clock):
    texts = []
    worker = Worker(memory=int(1.5 * GB))
    worker.has_what = dict.fromkeys([Task("load", 9 * GB // 10), Task("load", GB // 10)])
    worker.executing = {Task("sum"): 1.0}
    monitor = watch(worker, warn=texts.append)
    measure(monitor, clock, times=12)
    (text,) = texts
    assert "results of 'load' fill it (1 GB" in text
    assert "ram_gb_per_proc=2.5 or more workers" in text


def test_another_cause_is_another_warning(watch, clock):
    texts = []
    worker = Worker(memory=int(1.7 * GB), status="paused")
    monitor = watch(worker, warn=texts.append)
    for name in ("read", "join", "read"):
        worker.executing = {Task(name): 1.0}
        measure(monitor, clock, times=6)
    assert ["'read' is running" in text for text in texts] == [True, False]


def test_short_pressure_and_workers_without_a_limit_are_no_reason(watch, clock):
    texts = []
    worker, unlimited = Worker(memory=int(1.5 * GB)), Worker("1", memory=GB, limit=0)
    monitor = watch(worker, unlimited, warn=texts.append)
    for _ in range(5):
        measure(monitor, clock, times=5)
        worker.use(GB)
        measure(monitor, clock)
        worker.use(int(1.5 * GB))
    assert texts == []


def test_without_a_function_all_clients_are_warned(watch, clock):
    monitor = watch(Worker(memory=int(1.7 * GB), status="paused"))
    measure(monitor, clock, times=5)
    [(topic, message)] = monitor.scheduler.events
    assert topic == "warn"
    assert "no task is running" in pickle.loads(message["message"])


def test_graphs_after_the_first_tasks_measure_no_empty_process(watch, monkeypatch):
    monitor = watch(Worker())
    measured = []
    monkeypatch.setattr(monitor, "measure", lambda: measured.append(1))
    monitor.update_graph(monitor.scheduler, keys=set(), tasks=[])
    assert len(measured) == 1
    monitor.scheduler.tasks = {"sum": Task("sum")}
    monitor.transition("sum", "processing", "memory", nbytes=1, startstops=[])
    for _ in range(10):
        monitor.update_graph(monitor.scheduler, keys=set(), tasks=[])
    assert len(measured) == 1


def test_the_figures_are_fields_of_a_record(watch):
    monitor = watch(Worker())
    monitor.log_event(TOPIC, report())
    record = RunRecord(name="r", cluster="c", started=0, ended=1, **monitor.usage())
    assert record.restarts == 1


def test_failed_tasks_are_in_the_times_of_their_group(watch):
    monitor = watch(Worker())
    monitor.scheduler.tasks = {"good": Task("sum"), "bad": Task("sum")}
    began = monitor._timeline.as_dict()["started"]
    for key, finish, start in (("good", "memory", 1.0), ("bad", "erred", 2.0)):
        steps = [{"action": "compute", "start": began + start, "stop": began + start + 0.5}]
        monitor.transition(key, "processing", finish, startstops=steps)
    (group,) = monitor.usage()["timeline"]["groups"]
    assert (group["name"], group["count"], group["failed"]) == ("sum", 2, 1)
    assert (group["started"], group["ended"]) == pytest.approx((1.0, 2.5), abs=0.01)


def test_a_pause_is_in_the_timeline_when_the_worker_reports_it(watch):
    worker = Worker()
    monitor = watch(worker)
    change = {"action": "worker-status-change", "prev-status": "running", "status": "paused"}
    monitor.log_event(worker.address, change)
    monitor.log_event("tcp://unknown", change)
    monitor.log_event(worker.address, {**change, "status": "running"})
    (found,) = monitor.usage()["timeline"]["workers"]
    ((start, end),) = found["paused"]
    assert 0 <= start <= end


def test_usage_has_the_change_that_the_latest_error_proposes(watch):
    monitor = watch()
    assert monitor.report()["fix"] == ""
    explainer = MemoryExplainer(b"", WorkerLayout())
    monitor.scheduler.plugins[explainer.name] = explainer
    explainer.last_fix = "df = df.repartition(...)"
    assert monitor.report()["fix"] == "df = df.repartition(...)"
