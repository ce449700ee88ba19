"""Figures of computations, from the state of a scheduler, without processes."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.guard import computation_usage, graph_structure
from hyperplane.guard.computation_usage import Computations
from hyperplane.guard.process_usage import ProcessUsage, read_process_usage

GB = 10**9


class Worker:
    """A worker as the scheduler sees it."""

    def __init__(self, name="0", memory=0, nbytes=0, **told):
        self.address, self.nthreads, self.nbytes = f"tcp://{name}", 2, nbytes
        self.status = SimpleNamespace(name="running")
        self.use(memory, **told)

    def use(self, memory, disk=0, **told):
        self.figures = {"memory": memory, "spilled_bytes": {"disk": disk}}
        self.figures[ProcessUsage.metric] = told

    @property
    def metrics(self):
        self.reads = getattr(self, "reads", 0) + 1
        return self.figures


def make_scheduler(*workers, parts=3, name="sum-1"):
    """Return a scheduler with the graph of a sum."""
    nodes = {("load-1", part): Task(("load-1", part), int, part) for part in range(parts)}
    nodes[name] = Task(name, sum, *(TaskRef(key) for key in nodes))
    tasks = {key: SimpleNamespace(run_spec=node, state="waiting") for key, node in nodes.items()}
    return SimpleNamespace(tasks=tasks, workers={worker.address: worker for worker in workers})


def begin(computations, scheduler, key="sum-1"):
    computations.begin(scheduler, {key}, list(scheduler.tasks))


def finish(computations, scheduler, key="sum-1", state="memory"):
    ended = computations.end_key(key, state)
    computations.measure(scheduler.workers.values())
    return ended


def test_a_computation_has_peak_cpu_and_bytes_of_its_time():
    workers = [Worker("0", GB, cpu=5.0, read=100, peak=2 * GB), Worker("1", GB, cpu=1.0, peak=GB)]
    scheduler, computations = make_scheduler(*workers), Computations()
    computations.empty = GB // 2
    begin(computations, scheduler)
    workers[0].use(GB, cpu=7.0, read=150, peak=2 * GB)  # its peak is an earlier one
    workers[1].use(int(1.2 * GB), cpu=2.0, read=10, peak=int(1.5 * GB))
    assert finish(computations, scheduler)
    (found,) = computations.list_done()
    assert (found.name, found.tasks, found.sources, found.count) == ("sum", 4, 3, 1)
    assert (found.peak, found.total, found.empty) == (int(1.5 * GB), int(2.2 * GB), GB // 2)
    assert (found.cpu_seconds, found.read) == (3.0, 60)
    assert (found.processes, found.threads) == (2, 2)
    assert (found.failed, found.shared, found.disturbed) == (0, False, False)
    assert found.structure


def test_a_new_process_counts_as_a_whole_and_disturbs():
    scheduler, computations = make_scheduler(Worker("0", cpu=5.0, peak=GB)), Computations()
    begin(computations, scheduler)
    computations.disturb()
    new = Worker("1", 100, cpu=2.0, peak=3 * GB)
    scheduler.workers = {new.address: new}
    finish(computations, scheduler)
    (found,) = computations.list_done()
    assert (found.peak, found.cpu_seconds, found.disturbed) == (3 * GB, 2.0, True)


def test_pauses_spilled_data_and_earlier_results_are_noted():
    worker = Worker("0", GB, nbytes=GB // 4)
    scheduler, computations = make_scheduler(worker), Computations()
    begin(computations, scheduler)
    worker.use(GB, disk=77)
    worker.status.name = "paused"
    finish(computations, scheduler)
    (found,) = computations.list_done()
    assert (found.held, found.spilled, found.disturbed) == (GB // 4, 77, True)


def test_computations_at_the_same_time_are_shared():
    scheduler, computations = make_scheduler(Worker()), Computations()
    other = make_scheduler(Worker(), name="mean-1")
    begin(computations, scheduler)
    begin(computations, other, "mean-1")
    finish(computations, other, "mean-1", "erred")
    finish(computations, scheduler)
    assert [(each.name, each.shared) for each in computations.list_done()] == [
        ("mean", True),
        ("sum", True),
    ]
    assert [each.failed for each in computations.list_done()] == [1, 0]
    assert computations.wanted == {}


def test_computations_of_one_structure_are_one_with_the_largest_peak():
    worker = Worker("0", GB)
    computations = Computations()
    for parts, memory in ((3, GB), (5, 3 * GB), (2, 2 * GB)):
        scheduler = make_scheduler(worker, parts=parts)
        worker.use(memory)
        begin(computations, scheduler)
        finish(computations, scheduler)
    (found,) = computations.list_done()
    assert (found.count, found.peak, found.sources) == (3, 3 * GB, 5)


def test_what_is_there_already_begins_nothing():
    scheduler, computations = make_scheduler(Worker()), Computations()
    scheduler.tasks["sum-1"].state = "memory"
    begin(computations, scheduler)
    computations.begin(scheduler, {"gone"}, ["gone"])
    assert computations.wanted == {}
    assert not computations.end_key("sum-1", "memory")


def test_the_number_of_computations_is_bounded(monkeypatch):
    monkeypatch.setattr(computation_usage, "MAX_COMPUTATIONS", 3)
    computations = Computations()
    for number in range(6):
        name = f"step{'abcdef'[number]}"
        scheduler = make_scheduler(Worker(), name=name)
        begin(computations, scheduler, name)
        finish(computations, scheduler, name)
    assert len(computations.list_done()) == 3


class MeasureCounter:
    """Counts how often workers are read and open computations take figures."""

    def __init__(self, monkeypatch, workers):
        self.workers, self.taken = workers, 0
        measure = computation_usage.OpenComputation.measure

        def count(computation, figures):
            self.taken += 1
            measure(computation, figures)

        monkeypatch.setattr(computation_usage.OpenComputation, "measure", count)

    def pop(self):
        """Return the reads of each worker, and the measurements, since the last call."""
        found = max(worker.reads for worker in self.workers), self.taken
        for worker in self.workers:
            worker.reads = 0
        self.taken = 0
        return found


def submit(computations, scheduler, number):
    """Add a computation of one task to a scheduler, as ``Client.submit`` does."""
    key = f"work-{number}"
    scheduler.tasks[key] = SimpleNamespace(run_spec=Task(key, int, 1), state="waiting")
    computations.begin(scheduler, {key}, [key])
    return key


def test_many_submits_do_not_measure_each_other(monkeypatch):
    workers = [Worker(str(number), GB) for number in range(32)]
    scheduler, computations = make_scheduler(*workers), Computations()
    counter = MeasureCounter(monkeypatch, workers)
    keys = [submit(computations, scheduler, number) for number in range(5000)]
    reads, taken = counter.pop()
    assert reads <= 2 * computation_usage.MAX_OPEN  # memory, and what the process tells
    assert taken == 0
    computations.measure(scheduler.workers.values())
    assert counter.pop() == (2, computation_usage.MAX_OPEN)
    # A result that is there frees one place; the next computation measures that one only.
    for number, key in enumerate(keys[:100]):
        computations.end_key(key, "memory")
        keys.append(submit(computations, scheduler, 5000 + number))
    reads, taken = counter.pop()
    assert reads <= 2 * 100
    assert taken <= 100
    for key in keys:
        computations.end_key(key, "memory")
    computations.measure(scheduler.workers.values())
    (found,) = computations.list_done()
    assert found.shared
    assert computations.wanted == {}
    begin(computations, scheduler)
    finish(computations, scheduler)
    assert not computations.list_done()[-1].shared


def test_a_computation_beside_ones_that_are_not_measured_is_shared(monkeypatch):
    monkeypatch.setattr(computation_usage, "MAX_OPEN", 1)
    scheduler, computations = make_scheduler(Worker()), Computations()
    begin(computations, scheduler)
    other = submit(computations, scheduler, 1)
    finish(computations, scheduler)
    later = make_scheduler(Worker(), name="mean-1")
    begin(computations, later, "mean-1")
    assert not computations.end_key(other, "memory")
    finish(computations, later, "mean-1")
    assert [(each.name, each.shared) for each in computations.list_done()] == [
        ("sum", True),
        ("mean", True),
    ]
    begin(computations, later := make_scheduler(Worker(), name="max-1"), "max-1")
    finish(computations, later, "max-1")
    assert not computations.list_done()[-1].shared


def test_a_file_system_that_does_not_answer_has_one_thread(monkeypatch):
    monkeypatch.setattr(computation_usage, "MAX_INPUTS", 10)
    asked, answers = threading.Event(), threading.Event()

    def measure_file(path):
        asked.set()
        answers.wait(60)
        return 500

    monkeypatch.setattr(graph_structure, "_measure_file", measure_file)
    computations = Computations()

    def count_threads():
        return sum(thread.name == "hyperplane-input" for thread in threading.enumerate())

    try:
        for first, second in itertools.product("abcdefghij", repeat=2):
            name = f"step{first}{second}"
            scheduler = make_scheduler(Worker(), name=name)
            for part in range(3):
                key = ("load-1", part)
                scheduler.tasks[key].run_spec = Task(key, open, "/net/data")
            begin(computations, scheduler, name)
            finish(computations, scheduler, name)
            assert asked.wait(60)
        assert count_threads() == 1
        assert not any(each.input for each in computations.list_done())
    finally:
        answers.set()
    for _ in range(500):
        if not count_threads():
            break
        time.sleep(0.01)
    assert count_threads() == 0
    # One was being measured, and ten waited.
    assert [each.input for each in computations.list_done()] == [500] * 11 + [0] * 89


def test_files_are_measured_in_another_thread(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(500))
    scheduler, computations = make_scheduler(Worker()), Computations()
    for part in range(3):
        key = ("load-1", part)
        scheduler.tasks[key].run_spec = Task(key, open, str(file))
    begin(computations, scheduler)
    finish(computations, scheduler)
    (found,) = computations.list_done()
    for _ in range(500):
        if found.input:
            break
        time.sleep(0.01)
    assert found.input == 500


def test_a_process_tells_its_peak_cpu_and_bytes_read(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(3_000_000))
    before = read_process_usage()
    file.read_bytes()
    after = read_process_usage()
    assert after["peak"] > 10_000_000
    assert after["cpu"] >= before["cpu"] > 0
    assert after["read"] - before["read"] >= 3_000_000
