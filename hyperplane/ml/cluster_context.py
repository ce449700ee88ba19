"""Public context in which scikit-learn computes on the cluster."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import check
from hyperplane.core.optional import need
from hyperplane.core.progress import show_progress
from hyperplane.core.public_calls import check_call
from hyperplane.core.worker_imports import list_loaded_modules

if TYPE_CHECKING:
    from distributed import Client


@check_call
@contextmanager
def parallel(client: Client | None = None, *, progress: bool = True) -> Iterator[Client]:
    """Run the parallel parts of scikit-learn on the cluster.

    All calls of joblib in this context, such as the fits of a grid search or the trees of a random
    forest, are tasks of the cluster. Large arrays are sent to the workers once for each call. A
    worker that dies costs only its running tasks. Parallel calls within a task run in its worker,
    one after the other.

    Parameters
    ----------
    client : distributed.Client, optional
        Client of the cluster; by default that of :func:`hyperplane.initialize_cluster`.
    progress : bool
        Whether to show a progress bar, on a terminal or in a notebook.

    Yields
    ------
    distributed.Client
        The client.

    Raises
    ------
    RequestError
        If there is no cluster. Also in a call, if an estimator cannot be sent to the workers.
    MissingPackage
        If joblib is not installed (extra ``ml``).

    Notes
    -----
    An error of a fit has its own type, and its message ends with the estimator and its parameters.
    ``with joblib.parallel_backend("dask")`` works as documented by joblib, without the
    improvements that :mod:`hyperplane.ml.joblib_backend` lists.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.svm import SVC
    >>> from hyperplane import plan_cluster, start
    >>> from hyperplane.ml import parallel
    >>> client, cluster = start(plan_cluster(1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5))
    >>> grid = GridSearchCV(SVC(), {"C": [0.1, 1.0]})
    >>> with parallel():
    ...     _ = grid.fit(*load_iris(return_X_y=True))
    >>> grid.best_params_
    {'C': 1.0}
    >>> client.close(); cluster.close()
    """
    joblib = need("joblib", "ml")
    client = get_active_client() if client is None else client
    check([*find_client_faults(client), *find_flag_faults(progress=progress)])
    assert client is not None  # noqa: S101 - for mypy
    from hyperplane.ml.joblib_backend import ClusterBackend

    import_on_workers(client, ["joblib", *list_loaded_modules()])
    with (
        show_progress("fits", None, shown=progress) as advance,
        joblib.parallel_config(backend=ClusterBackend(client, advance)),
    ):
        yield client


def import_on_workers(client: Client, modules: list[str]) -> None:
    """Begin to import modules in all worker processes, without waiting.

    The first task would otherwise import them, which takes seconds for scikit-learn.
    """
    from distributed import fire_and_forget

    for worker in client.nthreads():
        future = client.submit(_import_modules, modules, workers=[worker], pure=False)
        fire_and_forget(future)


def _import_modules(modules: list[str]) -> None:
    for name in modules:
        if name not in sys.modules:
            with suppress(ImportError):
                importlib.import_module(name)
