"""Program that runs a sample; ``main`` has its arguments.

It is a process without a worker that imports what a worker imports, and runs one task after the
other in one thread, as a worker of one thread does. Its memory is measured for each task. Before
each task it returns free memory to the system, which shows what the task itself needs.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path
from typing import Any, BinaryIO

from hyperplane.clusters.dask.worker_memory import ARROW_POOL, apply_arrow_pool
from hyperplane.collections.frames.helper_steps import GROUPING
from hyperplane.forecasts.group_counter import GroupCounter
from hyperplane.forecasts.held_memory import measure_held, measure_overlaps
from hyperplane.forecasts.memory_meter import (
    PeakMeter,
    has_exact_peaks,
    read_library_memory,
    read_memory,
    release_memory,
)
from hyperplane.forecasts.records import (
    KeyStatistics,
    SampleRequest,
    SampleResult,
    SampleSetup,
    SampleTask,
    TaskRecord,
)
from hyperplane.forecasts.sampled_pieces import choose_pieces, measure_outputs, rotate_pieces
from hyperplane.forecasts.sampled_tasks import run_members
from hyperplane.forecasts.shared_memory import SharedMemoryMeter
from hyperplane.forecasts.task_units import Key

#: Seconds between checks whether the process that waits for the result has ended.
_WATCH_SECONDS = 0.5


class _StepError(Exception):
    """A task of a step has failed; the error of the task is its cause."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class SampleRunner:
    """Runs the steps of a sample and keeps results as long as later steps need them."""

    def __init__(self, request: SampleRequest, folder: Path) -> None:
        from dask.sizeof import sizeof

        self.request = request
        self.shuffles: Any = None
        if request.shuffles:
            from hyperplane.core.dask_internals.shuffles import set_shuffle_plugin
            from hyperplane.forecasts.sampled_shuffle import SampledShuffles

            self.shuffles = SampledShuffles(request.shuffles, request.shuffle_inputs, folder)
            set_shuffle_plugin(self.shuffles)
        self._sizeof = sizeof
        keys = [key for key in request.keys if key.operation in GROUPING]
        self._group_keys = {key.names for key in keys if key.groups is None}
        self._helper_keys = [key for key in keys if key.groups is not None]
        self._results: dict[tuple[int, Key], Any] = {}
        self._sizes: dict[tuple[int, Key], int] = {}
        self._users = Counter(
            place for task in request.tasks for place in set(task.inputs.values())
        )

    def run(self) -> tuple[list[TaskRecord], TaskRecord | None]:
        """Run the first step, and then all of them; return the records."""
        tasks = self.request.tasks
        repeated = None
        if tasks and not tasks[0].inputs:
            # Without its results, which would be in memory during all other steps.
            repeated = self._run_step(0)[0]
        if self.shuffles is not None:
            self.shuffles.forget()
        records: list[TaskRecord] = []
        for number, task in enumerate(tasks):
            record, values = self._run_step(number)
            if number and record.written and not any(each.written for each in records):
                # The first task that writes also fills the pool of Arrow's writer, which remains.
                del values
                record, values = self._run_step(number)
            records.append(record)
            for key, size in zip(task.outputs, record.outputs, strict=True):
                if self._users[number, key]:
                    self._results[number, key] = values[key]
                    self._sizes[number, key] = size
            del values
            for place in set(task.inputs.values()):
                self._users[place] -= 1
                if not self._users[place]:
                    del self._results[place], self._sizes[place]
        return records, repeated

    def _run_step(self, number: int) -> tuple[TaskRecord, dict[Key, Any]]:
        try:
            return self._measure(self.request.tasks[number])
        except Exception as error:
            raise _StepError(number) from error

    def _measure(self, task: SampleTask) -> tuple[TaskRecord, dict[Key, Any]]:
        inputs, size = self._find_inputs(task)
        counter = GroupCounter(self._helper_keys)
        task = replace(task, members=counter.count_members(task.members))
        if self.shuffles is not None:
            self.shuffles.start_task(task.takes)
        release_memory()
        library = read_library_memory()
        cpu, began = time.process_time(), time.perf_counter()
        with PeakMeter() as meter, SharedMemoryMeter() as shared:
            values, waiting, has_tables, block = run_members(task, inputs, self._sizeof, meter)
        held = [measure_held(values[key], inputs.values()) for key in task.outputs]
        added, taken = {}, 0
        if self.shuffles is not None:
            self.shuffles.receive()
            added, taken = dict(self.shuffles.added), self.shuffles.taken
        record = TaskRecord(
            seconds=time.perf_counter() - began,
            cpu=time.process_time() - cpu,
            before=meter.before,
            peak=meter.peak,
            after=meter.after,
            live=self._measure_live(),
            inputs=size,
            outputs=tuple(
                self._sizeof(values[key]) + more
                for key, more in zip(task.outputs, held, strict=True)
            ),
            added=added,
            taken=taken,
            waiting=waiting,
            groups=counter.rows or self._count_groups(values[key] for key in task.outputs),
            group_names=counter.names,
            rows_per_key=counter.rows_per_key,
            has_tables=has_tables,
            block=block,
            written=_remove_files(self.request.target),
            pieces={}
            if task.divided is None
            else measure_outputs(values[task.divided], task.outputs_of_all, self._sizeof),
            library=library,
            shared=shared.size,
            filed=sum(self._sizeof(values[key]) for key in task.outputs if is_filed(values[key])),
            held=sum(held),
            overlaps=measure_overlaps(values[key] for key in task.outputs),
        )
        return record, values

    def _measure_live(self) -> int:
        """Return the bytes of the results of earlier steps in memory."""
        sizes = self._sizes.items()
        return sum(size for place, size in sizes if not is_filed(self._results[place]))

    def _find_inputs(self, task: SampleTask) -> tuple[dict[Key, Any], int]:
        """Return the inputs of a task, and their bytes."""
        whole = {key: place for key, place in task.inputs.items() if key not in task.pieces}
        inputs = {key: self._results[place] for key, place in whole.items()}
        for key, (use, is_once) in task.rotated.items():
            inputs[key] = rotate_pieces(inputs[key], use, is_once)
        for key, node in task.taken.items():
            inputs[key] = node(dict.fromkeys(node.dependencies, inputs[key]))
        size = sum(
            self._sizeof(inputs[key]) if key in task.rotated else self._sizes[place]
            for key, place in whole.items()
        )
        if task.pieces:
            places = {key: task.inputs[key] for key in task.pieces}
            tables = {place: self._results[place] for place in places.values()}
            pieces, taken = choose_pieces(
                task.pieces, places, tables, task.most_pieces, self._sizeof
            )
            inputs |= pieces
            size += taken
        return inputs, size

    def _count_groups(self, results: Iterable[Any]) -> int:
        if not self._group_keys:
            return 0
        return sum(count_groups(result, self._group_keys) for result in results)

    def measure_keys(self, records: Sequence[TaskRecord]) -> tuple[KeyStatistics, ...]:
        """Examine the keys of operations, in a share of the time that the job reads their files."""
        if not self.request.keys:
            return ()
        from hyperplane.forecasts.key_statistics import measure_keys

        reading = [
            record.cpu
            for task, record in zip(self.request.tasks, records, strict=True)
            if not task.inputs
        ]
        each = self.request.budget * sum(reading) / len(reading)
        return measure_keys(self.request.keys, lambda files: each * files)


def is_filed(value: Any) -> bool:
    """Return whether a result is a table, or pieces of one, in files of this package."""
    module = sys.modules.get("hyperplane.collections.frames.kernels.table_files")
    return module is not None and bool(module.is_filed(value))


def count_groups(value: Any, keys: Collection[tuple[str, ...]]) -> int:
    """Return the rows of a pandas object if each has another key, otherwise 0."""
    index: Any = getattr(value, "index", None)
    if not hasattr(index, "names"):
        return 0
    if tuple(index.names) in keys:
        # Not is_unique, whose table of hashes would remain in memory.
        is_unique = not index.duplicated().any()
    elif hasattr(value, "columns"):
        is_unique = tuple(value.columns) in keys and not value.duplicated().any()
    else:
        is_unique = (value.name,) in keys and not value.duplicated().any()
    return len(value) if is_unique else 0


def _remove_files(folder: str) -> int:
    """Remove the files in a folder, and return their bytes; without a name there are none."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()] if folder else []
    size = sum(path.stat().st_size for path in files)
    for path in files:
        path.unlink()
    return size


def import_modules(names: Sequence[str]) -> None:
    """Import what a worker process has imported before its first task."""
    gc.disable()  # collections during imports free nothing and take a sixth of the time
    try:
        for name in names:
            # A worker that cannot import a module reports it when it starts.
            with suppress(ImportError):
                importlib.import_module(name)
    finally:
        gc.enable()


def main(parent: str, request_path: str, result_path: str) -> None:
    """Run a sample that is pickled in a file; pickle the result.

    Parameters
    ----------
    parent : str
        Process ID of the process that waits for the result; if it ends, this one ends, too.
    request_path, result_path : str
        Files in a folder of this sample.
    """
    _be_killed_first()
    folder = Path(request_path).parent
    with Path(request_path).open("rb") as file:
        setup: SampleSetup = pickle.load(file)  # noqa: S301 - from the parent process
        sys.path[:] = setup.path
        import_modules(setup.modules)
        if setup.forked and _is_parent(int(parent), folder):
            return
        if not setup.forked:
            _start_watch(int(parent), folder)
        if setup.arrow_pool:
            os.environ[ARROW_POOL] = setup.arrow_pool
            apply_arrow_pool()
        if setup.main:
            _run_main_module(setup.main)
        result = _run_safely(file, folder)
    with Path(result_path).open("wb") as file:
        pickle.dump(result, file)


def _run_main_module(main: Mapping[str, str]) -> None:
    """Import the main module of the program, as workers do, with what it imports."""
    before = sys.modules["__main__"]
    try:
        spawn.prepare(dict(main))
    except (Exception, SystemExit):  # noqa: BLE001 - a worker that cannot run it starts, too
        sys.modules["__main__"] = before


def _start_watch(parent: int, folder: Path) -> None:
    """End this process and its children when the process that waits for it has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _is_parent(parent: int, folder: Path) -> bool:
    """Fork; return whether this is the first process, after the second has ended.

    Memory of a forked worker process has no pages of libraries that it has not used.
    """
    gc.collect()
    gc.freeze()
    child = os.fork()
    if not child:
        return False
    _start_watch(parent, folder)  # after the fork, which copies no threads
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    elif code:
        sys.exit(code)
    return True


def _be_killed_first() -> None:
    """Let the system kill this process before others if there is no memory left."""
    with suppress(OSError):  # other systems than Linux have no such file
        Path("/proc/self/oom_score_adj").write_text("1000")


def _run_safely(file: BinaryIO, place: Path) -> SampleResult:
    gc.collect()
    release_memory()
    empty, library = read_memory(), read_library_memory()
    try:
        return replace(_run(file, place, empty), library=library)
    except _StepError as error:
        return _describe(error.__cause__ or error, empty, error.step)
    except Exception as error:  # noqa: BLE001 - such as those of reading the request
        return _describe(error, empty, None)


def _describe(error: BaseException, empty: int, step: int | None) -> SampleResult:
    """Return the result of a sample that has failed."""
    cause = error.__cause__ or error
    text = f"{type(cause).__name__}: {cause}"[:500]
    return SampleResult((), empty, True, error=text, failed=step)


def _run(file: BinaryIO, place: Path, empty: int) -> SampleResult:
    import dask

    request: SampleRequest = pickle.load(file)  # noqa: S301 - from the parent process
    with (
        dask.config.set(request.config),
        tempfile.TemporaryDirectory(dir=place) as folder,
        # A worker runs tasks in a thread, too.
        ThreadPoolExecutor(1) as executor,
    ):
        runner = SampleRunner(request, Path(folder))
        records, repeated = executor.submit(runner.run).result()
        shares = runner.shuffles.get_shares() if runner.shuffles is not None else {}
        keys = runner.measure_keys(records)
    return SampleResult(tuple(records), empty, has_exact_peaks(), repeated, shares, keys)
