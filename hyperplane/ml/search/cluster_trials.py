"""Trials of a search as tasks of a Dask cluster."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import EngineError
from hyperplane.ml.search.search import Search
from hyperplane.ml.search.search_storage import result_file
from hyperplane.ml.search.trial import Trial, TrialResult, run_trial

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds that a trial waits for the answer to an intermediate value; then it goes on.
_ANSWER_SECONDS = 30.0
#: Times that a trial whose input was lost with a worker is submitted again.
_MAX_LOST = 3
#: Name of the file by which a worker recognizes the folder of the search.
_TOKEN = "token"  # noqa: S105 - no secret


def run_on_cluster(
    search: Search,
    objective: Callable[..., Any],
    client: Client,
    max_parallel: int,
    advance: Callable[[], None],
    data: Any = None,
) -> None:
    """Run the remaining trials of a search as tasks, at most ``max_parallel`` at a time.

    ``data`` is sent to the workers once, and passed to the objective by this name unless it is
    None.

    Raises
    ------
    EngineError
        If the cluster closes.
    SearchFailed
        If too many trials fail.
    """
    run = _ClusterRun(search, objective, client, data)
    try:
        run.run(max_parallel, advance)
    finally:
        run.close()


@dataclass
class _RunningTrial:
    """A submitted trial, with the names of the answers that it has received."""

    number: int
    values: dict[str, Any]
    future: Future[Any]
    lost: int = 0
    answers: list[str] = field(default_factory=list)


class _ClusterRun:
    """Loop that submits trials and handles their intermediate values and results."""

    def __init__(
        self, search: Search, objective: Callable[..., Any], client: Client, data: Any
    ) -> None:
        self._search, self._objective, self._client = search, objective, client
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._topic = f"hyperplane-search-{uuid.uuid4().hex}"
        self._running: dict[int, _RunningTrial] = {}
        self._data = data
        self._sent_data: Future[Any] | None = None
        self._folder = ""
        if search.folder is not None:
            (search.folder / _TOKEN).write_text(self._topic)
            self._folder = str(search.folder)
        client.subscribe_topic(self._topic, self._on_report)

    def run(self, max_parallel: int, advance: Callable[[], None]) -> None:
        while True:
            while len(self._running) < max_parallel and self._start_trial():
                pass
            if not self._running:
                return
            kind, content = self._events.get()
            if kind == "report":
                self._answer(content)
            elif self._end_trial(content):
                advance()

    def close(self) -> None:
        """Cancel running trials, which a later call runs again."""
        if self._client.status != "running":
            return
        self._client.unsubscribe_topic(self._topic)
        futures = [trial.future for trial in self._running.values()]
        if futures:
            self._client.cancel(futures, force=True)
        for trial in self._running.values():
            self._delete_answers(trial)

    def _start_trial(self) -> bool:
        asked = self._search.ask()
        if asked is None:
            return False
        number, values = asked
        self._running[number] = _RunningTrial(number, values, self._submit(number, values))
        return True

    def _submit(self, number: int, values: dict[str, Any]) -> Future[Any]:
        future = self._client.submit(
            run_as_task,
            self._objective,
            number,
            values,
            self._topic,
            self._folder,
            self._send_data(),
            answered=self._search.plan.prunes,
            key=f"trial-{number}-{uuid.uuid4().hex}",
            pure=False,
        )
        future.add_done_callback(lambda done: self._events.put(("end", (number, done))))
        return future

    def _send_data(self) -> Future[Any] | None:
        """Return the future of the data; send them if no worker has them, or has them any more."""
        sent = self._sent_data
        if self._data is not None and (sent is None or sent.status != "finished"):
            # In a list: scatter would send each item of a tuple apart.
            (sent,) = self._client.scatter([self._data], hash=False)
            self._sent_data = sent
        return sent

    async def _on_report(self, event: tuple[float, dict[str, Any]]) -> None:
        self._events.put(("report", event[1]))

    def _answer(self, report: dict[str, Any]) -> None:
        from distributed import Variable

        trial = self._running.get(report["number"])
        if trial is None:
            return
        prune = self._search.report(report["number"], report["value"], report["step"])
        if name := report["answer"]:
            trial.answers.append(name)
            Variable(name, client=self._client).set(prune)

    def _end_trial(self, content: tuple[int, Future[Any]]) -> bool:
        """Record the result of a task; return whether the trial has ended."""
        number, future = content
        trial = self._running.get(number)
        if trial is None or trial.future is not future:
            return False
        try:
            result: TrialResult = future.result()
        except CancelledError as error:
            if self._client.status != "running":
                raise EngineError(
                    "",
                    "the cluster closed while trials ran; call tune again with the same name "
                    "and a new cluster to run the remaining trials",
                ) from error
            trial.lost += 1
            if trial.lost <= _MAX_LOST:
                trial.future = self._submit(number, trial.values)
                return False
            result = _failed(error)
        except Exception as error:  # noqa: BLE001 - such as KilledWorker
            result = _failed(error)
        del self._running[number]
        self._delete_answers(trial)
        self._search.record(number, result)
        return True

    def _delete_answers(self, trial: _RunningTrial) -> None:
        from distributed import Variable

        for name in trial.answers:
            Variable(name, client=self._client).delete()


def run_as_task(
    objective: Callable[..., Any],
    number: int,
    values: dict[str, Any],
    topic: str,
    folder: str,
    data: Any = None,
    *,
    answered: bool,
) -> TrialResult:
    """Run a trial in a worker.

    If the worker shares the folder of the search, it writes the result there at once, so that a
    trial that has ended does not run again, even if the client dies before it receives the result.
    """
    shares = bool(folder) and _read(Path(folder, _TOKEN)) == topic
    file = result_file(Path(folder), number)
    # Dask repeats a task if its worker died after it had ended.
    if shares and (earlier := TrialResult.read(file)) is not None:
        return earlier
    if data is not None:
        objective = partial(objective, data=data)
    result = run_trial(objective, Trial(number, values, _TaskChannel(number, topic, answered)))
    if shares:
        result.write(file)
    return result


class _TaskChannel:
    """Connection of a trial in a worker with the search in the client."""

    def __init__(self, number: int, topic: str, answered: bool) -> None:
        self._number, self._topic, self._answered = number, topic, answered
        self._reports = 0
        self._answer = ""

    def report(self, value: float, step: int) -> None:
        from distributed import get_worker

        self._reports += 1
        if self._answered:
            self._answer = f"{self._topic}-{self._number}-{self._reports}"
        message = {
            "number": self._number, "value": value, "step": step, "answer": self._answer
        }  # fmt: skip
        get_worker().log_event(self._topic, message)

    def should_prune(self) -> bool:
        from distributed import Variable

        if not self._answer:
            return False
        try:
            return bool(Variable(self._answer).get(timeout=_ANSWER_SECONDS))
        except TimeoutError:
            return False


def _failed(error: BaseException) -> TrialResult:
    now = time()
    return TrialResult("failed", None, now, now, "", f"{type(error).__name__}: {error}"[:2000])


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
