"""Backend of joblib on a Dask cluster: the only importer of joblib's private names.

It differs from joblib's own backend in these points, each of which has a test:

- Large arguments that were lost with their workers are sent again, and the calls repeated.
- A call within a call runs in its worker, one after the other. joblib's backend submits it to the
  cluster as well, where the number of tasks multiplies.
- An error of a task, such as KilledWorker, and a result that cannot be pickled end the call.
  joblib's backend waits forever.
- Errors name the estimator that was fitted, and its parameters.
- A cluster with one thread computes, too. joblib would compute in the process of the client.
- After an error the remaining tasks are cancelled.
- Tasks wait at the scheduler until a worker is free. Dask would assign those of small calls at once
  to the workers that have their arguments, from which other workers only steal small arguments.
- A cluster that grows during a call runs more batches at the same time. joblib submits as many as
  the threads at the start of the call need.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import cloudpickle
from dask.base import is_dask_collection
from dask.sizeof import sizeof
from dask.utils import funcname
from joblib import parallel_config
from joblib._dask import DaskDistributedBackend
from joblib._utils import _ExceptionWithTraceback
from joblib.parallel import BACKENDS

from hyperplane.core.dask_internals.tasks import Task as GraphTask
from hyperplane.core.dask_internals.tasks import parse_input
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.pickling import find_pickle_faults

if TYPE_CHECKING:
    from distributed import Client, Future

#: Arguments above this size, in bytes, are sent to the workers before the tasks.
_LARGE_BYTES = 1000
#: Times that a batch whose arguments were lost with their workers is submitted again.
_MAX_LOST = 3
#: Seconds between two looks at the number of threads of the cluster.
_WATCH_SECONDS = 1.0
#: Maximum length of the text of an estimator in a message.
_MAX_TEXT = 500

Task = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]


@dataclass
class _SubmittedBatch:
    """A submitted batch of calls, and where its result goes."""

    tasks: list[Task]
    callback: Callable[[Any], object]
    result: concurrent.futures.Future[Any]
    lost: int = 0


class ClusterBackend(DaskDistributedBackend):  # type: ignore[misc]
    """Backend of joblib that runs batches of calls as tasks of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    advance : callable
        Called with the number of calls of each batch that has ended.
    """

    def __init__(self, client: Client, advance: Callable[[int], object]) -> None:
        super().__init__(client=client)
        self._advance = advance
        self._call = 0
        self._submitted: dict[Future[Any], _SubmittedBatch] = {}
        # By id, with a weak reference: an argument that the caller has dropped is released.
        self._sent: dict[int, tuple[weakref.ref[Any], asyncio.Task[Any]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return BACKENDS["sequential"], ()

    def get_nested_backend(self) -> tuple[Any, int]:
        """Return the backend of calls within a call."""
        return BACKENDS["sequential"](nesting_level=1), 1

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return the number of concurrent calls: the threads of the cluster, but at least two."""
        # With one, joblib would run the calls in this process instead.
        return max(2, int(super().effective_n_jobs(n_jobs)))

    def start_call(self) -> None:
        """Begin a call of joblib."""
        super().start_call()
        self._call += 1
        self.client.loop.add_callback(self._watch_threads, self._call)

    def stop_call(self) -> None:
        """End a call of joblib; release the copies of its arguments."""
        super().stop_call()
        self._sent.clear()

    def submit(
        self, func: Any, callback: Callable[[Any], object] | None = None
    ) -> concurrent.futures.Future[Any]:
        """Submit a batch of calls."""
        check(find_collection_faults(list(func.items)))
        result: concurrent.futures.Future[Any] = concurrent.futures.Future()
        result.get = result.result  # type: ignore[attr-defined] # the interface of joblib
        batch = _SubmittedBatch(list(func.items), callback or (lambda out: None), result)
        self.client.loop.add_callback(self._submit, batch)
        return result

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all tasks of the call; joblib reads none of their results."""
        super().abort_everything(ensure_ready=ensure_ready)
        futures = list(self._submitted)
        self._submitted.clear()
        if futures:
            self.client.cancel(futures, force=True)

    async def _submit(self, batch: _SubmittedBatch) -> None:
        try:
            tasks: list[Task] = [
                (call, await self._send(arguments), await self._send_values(named))
                for call, arguments, named in batch.tasks
            ]
            name = f"batch_of_{funcname(batch.tasks[0][0])}_{len(tasks)}_calls"
            future = self._submit_task(f"{name}-{uuid4().hex}", tasks)
        except OSError:  # a worker died while it received an argument
            self._submit_again(batch)
            return
        except Exception as error:  # noqa: BLE001 - such as one of pickling; joblib raises it
            if _is_removed_worker(error):
                self._submit_again(batch)
                return
            self._end(batch, _explain(error, batch.tasks))
            return
        self._submitted[future] = batch
        self.waiting_futures.add(future)

    def _submit_task(self, key: str, tasks: list[Task]) -> Future[Any]:
        """Submit a task as ``Client.submit`` does, but let the scheduler queue it.

        The scheduler queues data producers, of which this is Dask's mark, wherever their arguments
        are, and other tasks only if there are many of the same name.
        """
        task = GraphTask(key, run_batch, parse_input(tasks), _data_producer=True)
        future: Future[Any] = self.client.get({key: task}, key, sync=False, fifo_timeout="100ms")
        return future

    async def _send_values(self, named: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(named, await self._send(list(named.values())), strict=True))

    async def _send(self, arguments: Sequence[Any]) -> list[Any]:
        """Replace large arguments by futures of their copies on the workers."""
        sent = []
        for argument in arguments:
            if not _is_large_data(argument):
                sent.append(argument)
                continue
            known, scattered = self._sent.get(id(argument), (None, None))
            if scattered is None or known is None or known() is not argument:
                # To one worker; the others get it from there.
                sending = self.client.scatter(argument, hash=False, asynchronous=True)
                scattered = asyncio.ensure_future(sending)
                self._sent[id(argument)] = self._refer(argument), scattered
            sent.append(await scattered)
        return sent

    def _refer(self, argument: Any) -> weakref.ref[Any]:
        """Return a weak reference to an argument, which releases its copies on the workers."""
        number = id(argument)
        return weakref.ref(argument, lambda _: self._sent.pop(number, None))

    async def _watch_threads(self, call: int) -> None:
        """Dispatch more batches when the cluster has got more threads, until the call ends."""
        parallel = self.parallel
        jobs = most = parallel._cached_effective_n_jobs
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if not self._is_current(call):
                return
            try:
                threads = sum((await self.client.scheduler.ncores(workers=None)).values())
            except OSError:  # the cluster closes; the tasks fail
                return
            if not self._is_current(call):
                return
            if threads <= most:
                continue
            parallel._cached_effective_n_jobs = threads  # the size of joblib's batches
            # A pre_dispatch that is a number does not depend on n_jobs.
            if isinstance(parallel.pre_dispatch, str) and parallel.pre_dispatch != "all":
                for _ in range((threads - most) * parallel._pre_dispatch_amount // jobs):
                    with parallel._lock:
                        if parallel._original_iterator is not None:
                            parallel.dispatch_next()
            most = threads

    def _is_current(self, call: int) -> bool:
        """Return whether a call of joblib has not ended, and the client is open."""
        return self._continue and self._call == call and self.client.status == "running"

    async def _collect(self) -> None:
        """Pass results to joblib until its call ends."""
        while self._continue:
            async for future, result in self.waiting_futures:
                batch = self._submitted.pop(future, None)
                if batch is None:
                    continue  # cancelled by this backend
                if future.status == "error":
                    self._end(batch, result[1])
                elif future.status == "finished":
                    self._finish(batch, result)
                else:
                    self._submit_again(batch)
            await asyncio.sleep(0.01)

    def _finish(self, batch: _SubmittedBatch, pickled: bytes) -> None:
        """Pass the results of a batch, or the error of one of its calls, to joblib."""
        try:
            results, failed = cloudpickle.loads(pickled)
        except Exception as error:  # noqa: BLE001 - unpickling runs code of any class
            reason = f"the result of a task cannot be unpickled: {type(error).__name__}: {error}"
            self._end(batch, RuntimeError(reason))
            return
        if isinstance(results, Exception):
            self._end(batch, results, failed)
            return
        self._advance(len(batch.tasks))
        batch.result.set_result(results)
        batch.callback(results)

    def _submit_again(self, batch: _SubmittedBatch) -> None:
        """Submit a batch whose arguments were lost with the workers that had them."""
        batch.lost += 1
        if batch.lost > _MAX_LOST or self.client.status != "running":
            reason = "the cluster closed, or its workers died repeatedly, before the call ended"
            self._end(batch, RuntimeError(reason))
            return
        self._sent.clear()
        self.client.loop.add_callback(self._submit, batch)

    def _end(self, batch: _SubmittedBatch, error: Exception, failed: int | None = None) -> None:
        """Make joblib raise an error of a batch; ``failed`` is the number of its call if known."""
        others = len(batch.tasks) - 1 if failed is None else 0
        named = name_estimator(error, batch.tasks[failed or 0], others)
        batch.result.set_exception(named)
        batch.callback(named)


def run_batch(tasks: list[Task]) -> bytes:
    """Run calls in a worker, one after the other.

    Returns the pickled list of results and None, or an error and the number of its call, None if
    that is unknown. Dask would pickle them in its event loop, where a failure lets the client wait
    forever.
    """
    results = []
    with parallel_config(backend="sequential"):
        for number, (call, arguments, named) in enumerate(tasks):
            try:
                results.append(call(*arguments, **named))
            except Exception as error:  # noqa: BLE001 - joblib raises it in the client
                return _pickle(_ExceptionWithTraceback(error), number)
            except BaseException as error:  # noqa: BLE001 - Dask would end its workers
                ended = RuntimeError(f"the call raised {type(error).__name__}: {error}")
                ended.__cause__ = error
                return _pickle(_ExceptionWithTraceback(ended), number)
    return _pickle(results, None)


def _pickle(result: Any, failed: int | None) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps((result, failed))
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        what = "the error" if failed is not None else "a result"
        reason = f"{what} of a task cannot be pickled: {type(error).__name__}: {error}"
        pickled = cloudpickle.dumps((RuntimeError(reason), failed))
    return pickled


def name_estimator(error: Exception, task: Task, others: int = 0) -> Exception:
    """Add the estimator of a call, and its parameters, to the message of an error.

    ``others`` is the number of other calls that the error may be from, as that of a killed worker.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> task = (print, [Ridge()], {"parameters": {"alpha": 2}})
    >>> print(name_estimator(ValueError("no rows"), task))
    no rows
    in a fit of Ridge() with {'alpha': 2}
    """
    _, arguments, named = task
    values = [*arguments, *named.values()]
    estimator = next((each for each in values if _is_estimator(each)), None)
    if estimator is None:
        return error
    parameters = named.get("parameters")
    text = " ".join(repr(estimator).split())[:_MAX_TEXT]
    if parameters:
        text = f"{text} with {parameters!r}"[: 2 * _MAX_TEXT]
    line = f"in a fit of {text}" + (f", or one of {others} others" if others else "")
    if len(error.args) == 1 and isinstance(error.args[0], str):
        if line not in error.args[0]:
            error.args = (f"{error.args[0]}\n{line}",)
    elif line not in getattr(error, "__notes__", ()):
        error.add_note(line)
    return error


def _explain(error: Exception, tasks: list[Task]) -> Exception:
    """Return an error that names what cannot be pickled, if that is the cause."""
    for _, arguments, named in tasks:
        for value in [*arguments, *named.values()]:
            if _is_estimator(value) and (faults := find_pickle_faults("estimator", value)):
                explained = RequestError(faults)
                explained.__cause__ = error
                return explained
    return error


def find_collection_faults(tasks: Sequence[Task]) -> list[Fault]:
    """Return a fault if a fit gets a Dask collection, which its worker would compute by itself.

    Examples
    --------
    >>> from dask.array import ones
    >>> from sklearn.linear_model import Ridge
    >>> find_collection_faults([(print, [Ridge(), ones(4)], {})])[0].asked
    'a Dask Array'
    """
    for _, arguments, named in tasks:
        values = [*arguments, *named.values()]
        collection = next((value for value in values if is_dask_collection(value)), None)
        if collection is not None and any(map(_is_estimator, values)):
            allowed = (
                "rows in memory, such as a pandas DataFrame or a NumPy array: each fit of "
                "scikit-learn needs them in one worker"
            )
            advice = (
                "call compute() on the rows, or on a sample of them; or use an estimator for Dask "
                "collections, of dask_ml, xgboost.dask or lightgbm, without parallel()"
            )
            return [Fault("data", f"a Dask {type(collection).__name__}", allowed, advice)]
    return []


def _is_removed_worker(error: Exception) -> bool:
    """Return whether a scatter failed because the scheduler removed the worker meanwhile.

    The scheduler then raises KeyError with the address.
    """
    return isinstance(error, KeyError) and "://" in str(error)


def _is_estimator(value: object) -> bool:
    return not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "get_params")


def _is_large_data(value: object) -> bool:
    """Return whether a value is an array, dataframe or sparse matrix of more than a kilobyte.

    Other values, such as lists, are part of their tasks: they have no weak references.
    """
    if not hasattr(value, "shape"):
        return False
    # dask.sizeof knows no dataframe of Polars: it returns 56 bytes for each.
    estimate = getattr(value, "estimated_size", None)
    size = estimate() if callable(estimate) else sizeof(value)
    return bool(size > _LARGE_BYTES)
