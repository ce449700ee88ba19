"""Batches of concurrent requests: instances of several requests are one call of the model."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hyperplane.ml.prediction.predictors import Predictor
from hyperplane.ml.prediction.rows import Predictions, Rows, describe_refusal, predict_rows
from hyperplane.ml.serving.request_body import MAX_ERRORS

#: Requests that may wait for one version of a model; further ones are refused.
MAX_WAITING = 1000
#: Larger integers have another type in NumPy.
_INT64 = range(-(2**63), 2**63)


class TooManyRequests(Exception):
    """There are :data:`MAX_WAITING` waiting requests."""


class BatcherClosed(Exception):
    """The version of the model was unloaded; it can be loaded again."""


@dataclass
class _Request:
    """Instances of one request, and the future of their predictions."""

    instances: Sequence[Any]
    future: asyncio.Future[Predictions]


class Batcher:
    """A thread that predicts the instances of concurrent requests together.

    While the model predicts a batch, further requests wait; they are the next batch. Only
    instances of the same form are predicted together, because the types of the values of one
    request would change those of another one.

    Parameters
    ----------
    predictor : Predictor
        The model.
    batch_size : int
        Maximum number of instances in one call of the model.
    wait : float
        Seconds that a request waits for others if the batch is not full.
    observe : callable
        Called with the number of instances of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        batch_size: int,
        wait: float,
        observe: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._predictor, self._batch_size, self._wait = predictor, batch_size, wait
        self._observe = observe
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._waiting = 0
        self._next: _Request | None = None
        self._closed = self._is_closing = False
        self._lock = threading.Lock()
        # A daemon, so that a model that does not return cannot prevent the end of the process.
        threading.Thread(target=self._run, name="hyperplane-predict", daemon=True).start()

    async def predict(self, instances: Sequence[Any]) -> Predictions:
        """Return the predictions of the instances of a request.

        Raises
        ------
        TooManyRequests
            If too many requests are waiting.
        BatcherClosed
            After :meth:`close`.
        """
        if self._waiting >= MAX_WAITING:
            raise TooManyRequests
        request = _Request(instances, asyncio.get_running_loop().create_future())
        with self._lock:  # nothing follows the None of close
            if self._is_closing:
                raise BatcherClosed
            self._queue.put(request)
        self._waiting += 1
        try:
            return await request.future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Predict the waiting requests, then end the thread."""
        with self._lock:
            self._is_closing = True
            self._queue.put(None)

    def _run(self) -> None:
        while (batch := self._collect()) is not None:
            for requests in _group(batch):
                with contextlib.suppress(OSError):  # a full disk is no reason not to predict
                    self._observe(sum(len(request.instances) for request in requests))
                self._predict(requests)

    def _collect(self) -> list[_Request] | None:
        """Return requests whose instances are at most one batch; None after the last one."""
        first = self._next or self._get(None)
        self._next = None
        if first is None:
            return None
        batch, count = [first], len(first.instances)
        deadline = time.monotonic() + self._wait
        while count < self._batch_size:
            request = self._get(deadline - time.monotonic())
            if request is None:
                break
            if count + len(request.instances) > self._batch_size:
                self._next = request
                break
            batch.append(request)
            count += len(request.instances)
        return batch

    def _get(self, timeout: float | None) -> _Request | None:
        """Return the next request; None after the last one, or if none arrives in time."""
        while not self._closed:
            try:
                if timeout is None:
                    request = self._queue.get()
                elif timeout > 0:
                    request = self._queue.get(timeout=timeout)
                else:
                    request = self._queue.get_nowait()
            except queue.Empty:
                return None
            if request is None:
                self._closed = True
            elif not request.future.cancelled():
                return request
        return None

    def _predict(self, requests: list[_Request]) -> None:
        """Predict requests together; those that the model refuses together, in halves."""
        outcomes: list[Predictions | BaseException] = []
        try:
            instances = [each for request in requests for each in request.instances]
            # A request with many bad instances must not delay others for long.
            most = MAX_ERRORS + 1 if len(requests) == 1 else 0
            rows = Rows(range(len(instances)), instances)
            found = predict_rows(self._predictor, rows, self._batch_size, None, most)
            if found.errors and len(requests) > 1:
                middle = len(requests) // 2
                self._predict(requests[:middle])
                self._predict(requests[middle:])
                return
            outcomes += _divide(found, [len(request.instances) for request in requests])
        except BaseException as error:  # noqa: BLE001 - the thread must answer every request
            outcomes = [RuntimeError(describe_refusal(error))] * len(requests)
        answers = [(request.future, each) for request, each in zip(requests, outcomes, strict=True)]
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            requests[0].future.get_loop().call_soon_threadsafe(_answer, answers)


def _group(batch: list[_Request]) -> list[list[_Request]]:
    """Return requests in groups of equal forms; the form of a single request is not computed."""
    if len(batch) == 1:
        return [batch]
    groups: dict[Any, list[_Request]] = {}
    for request in batch:
        groups.setdefault(form_of(request.instances), []).append(request)
    return list(groups.values())


def _divide(found: Predictions, counts: Sequence[int]) -> list[Predictions]:
    """Return the predictions of each request, numbered from 0."""
    values, errors = dict(found.values), dict(found.errors)
    results, start = [], 0
    for count in counts:
        rows = range(start, start + count)
        results.append(
            Predictions(
                [(row - start, values[row]) for row in rows if row in values],
                [(row - start, errors[row]) for row in rows if row in errors],
            )
        )
        start += count
    return results


def _answer(answers: list[tuple[asyncio.Future[Predictions], Predictions | BaseException]]) -> None:
    for future, result in answers:
        if future.done():  # its client has gone
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def form_of(instances: Sequence[Any]) -> Any:
    """Return the names and types of values; instances of equal forms can be predicted together.

    Examples
    --------
    >>> form_of([{"a": 1}]) == form_of([{"a": 2}, {"a": 3}])
    True
    >>> form_of([[1, "x"]]) == form_of([[1, 2]])
    False
    """
    try:
        return _find_form(instances)
    except RecursionError:  # of nested values
        return object()  # equal to no other form


def _find_form(instances: Sequence[Any]) -> Any:
    first = instances[0]
    if isinstance(first, dict):
        names = tuple(first)
        if all(type(each) is dict and tuple(each) == names for each in instances):
            kinds = [tuple(map(_kind, each.values())) for each in instances]
            return names, _merge(kinds)
    elif isinstance(first, list):
        if all(type(each) is list and len(each) == len(first) for each in instances):
            return len(first), _merge([tuple(map(_kind, each)) for each in instances])
    else:
        return frozenset(map(_kind, instances))
    return object()


def _merge(kinds: list[tuple[Any, ...]]) -> Any:
    """Return the kinds of each column; one instance has one kind in each."""
    return tuple(frozenset(column) for column in zip(*kinds, strict=True))


def _kind(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return kind if value in _INT64 else "large"
    if kind is list:
        return tuple(map(_kind, value))
    if kind is dict:
        return tuple((name, _kind(each)) for name, each in value.items())
    return kind
