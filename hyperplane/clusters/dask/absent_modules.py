"""Ask a worker of a started cluster which modules it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from distributed import Client

from hyperplane.clusters import interrupts
from hyperplane.core.dask_internals.clients import run_on_workers

#: Seconds for the answer, without which a start goes on.
ANSWER_SECONDS = 5.0


def find_absent_modules(client: Client, names: Sequence[str]) -> list[str]:
    """Return the top-level modules that a worker cannot import; the workers have one image.

    Raises
    ------
    TimeoutError
        If the worker has not answered within :data:`ANSWER_SECONDS`.
    KeyError
        If its answer was an error, or it was lost.
    """

    # A nested function is pickled by value: workers may not have this package.
    def find(names: Sequence[str]) -> list[str]:
        from importlib.util import find_spec

        return [name for name in names if find_spec(name) is None]

    worker = next(iter(client.scheduler_info(n_workers=1)["workers"]))
    with interrupts.allow_interrupts():
        answers = run_on_workers(
            client, find, list(names), workers=[worker], seconds=ANSWER_SECONDS
        )
    absent: list[str] = answers[worker]
    return absent
