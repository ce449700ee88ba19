"""Public function that tunes a training program by a specification of Cloud ML."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.core.active_cluster import find_client_faults, get_active_client
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call
from hyperplane.ml.search import search_storage
from hyperplane.ml.search.search_plan import (
    SearchPlan,
    TrialPlacement,
    find_option_faults,
)
from hyperplane.ml.search.search_result import SearchResult
from hyperplane.ml.search.search_run import run_search
from hyperplane.ml.search.training_program import TrainingProgram
from hyperplane.ml.search.tuning_spec import make_parameters, read_tuning_spec
from hyperplane.spec.tuning_job import TuningSpec

if TYPE_CHECKING:
    from distributed import Client


@check_call(outcome="no trial was started")
def tune_program(
    command: str | Sequence[str],
    spec: Any,
    *,
    name: str | None = None,
    job_dir: Any = None,
    seed: int | None = None,
    client: Client | None = None,
) -> SearchResult:
    """Tune a training program by a specification of Cloud ML, on the cluster.

    Each trial runs the program once, with ``--NAME=VALUE`` for each parameter. The program writes
    values of its metric with the package cloudml-hypertune, or as JSON lines into the file whose
    path is in the environment variable ``CLOUD_ML_HP_METRIC_FILE``.

    Parameters
    ----------
    command : str or list of str
        Program and arguments, such as ``["python", "-m", "trainer.task"]``. No shell reads it.
    spec : path or mapping
        The specification, or a training job with it under ``trainingInput.hyperparameters``: a
        YAML or JSON file, or a mapping.
    name : str, optional
        Name under which the search is kept; see :func:`tune`. The output of the programs is then
        kept in the folder ``searches/NAME`` of the folder of jobs, as ``trial-N.log``.
    job_dir : path or URL, optional
        Folder or URL for outputs; each trial gets ``--job-dir JOB_DIR/N`` with its number, from 1.
    seed : int, optional
        Seed of the drawn values.
    client : distributed.Client, optional
        Client of the cluster; by default that of :func:`hyperplane.initialize_cluster`. All workers
        must see the working directory of this process.

    Returns
    -------
    SearchResult
        Trials are numbered from 0 in its history, from 1 in the environment of the program.

    Raises
    ------
    RequestError
        With every fault of the request or the specification; nothing was started.
    SearchFailed
        If too many programs failed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from hyperplane import plan_cluster, start
    >>> from hyperplane.ml import tune_program
    >>> program = pathlib.Path(tempfile.mkdtemp(), "task.py")
    >>> _ = program.write_text('''
    ... import json, os, sys
    ... units = int(sys.argv[1].removeprefix("--units="))
    ... with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    ...     print(json.dumps({"accuracy": 1 - 1 / units}), file=file)
    ... ''')
    >>> spec = {"hyperparameterMetricTag": "accuracy", "maxTrials": 2, "algorithm": "GRID_SEARCH",
    ...         "params": [{"parameterName": "units", "type": "DISCRETE",
    ...                     "discreteValues": [2, 4]}]}
    >>> client, cluster = start(plan_cluster(1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5))
    >>> result = tune_program(["python", str(program)], spec)
    >>> result.best_params, result.best_value
    ({'units': 4}, 0.75)
    >>> client.close(); cluster.close()
    """
    need("optuna", "ml")
    parsed: TuningSpec | None = None
    faults: list[Fault] = []
    try:
        parsed = read_tuning_spec(spec)
    except RequestError as error:
        faults += error.faults
    client = get_active_client() if client is None else client
    faults += _find_command_faults(command)
    faults += find_option_faults(name=name, seed=seed)
    faults += find_client_faults(client)
    if job_dir is not None and not isinstance(job_dir, (str, os.PathLike)):
        faults.append(Fault("job_dir", describe_value(job_dir), "a folder or URL, or None"))
    previous = None if parsed is None else parsed.resumePreviousJobId
    if previous is not None:
        faults += search_storage.find_name_faults(previous, "resumePreviousJobId")
        if previous == name:
            advice = "remove it: a search with the same name continues in any case"
            allowed = "another name than that of this search"
            faults.append(Fault("resumePreviousJobId", repr(previous), allowed, advice))
    check(faults)
    assert parsed is not None  # noqa: S101 - for mypy
    plan = SearchPlan(
        parameters=make_parameters(parsed),
        method=parsed.method,
        direction=parsed.direction,
        max_trials=parsed.maxTrials,
        # 0 lets the service decide.
        max_failed=parsed.maxFailedTrials or None,
        early_stopping=parsed.enableTrialEarlyStopping,
        seed=seed,
    )
    program = TrainingProgram(
        command=_to_argv(command),
        metric=parsed.hyperparameterMetricTag,
        directory=str(Path.cwd()),
        job_dir=None if job_dir is None else os.fspath(job_dir),
        log_folder=None if name is None else str(search_storage.search_folder(name)),
    )
    placement = TrialPlacement(client, parsed.maxParallelTrials)
    return run_search(plan, program, placement, name=name, previous=previous)


def _to_argv(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return a command as a list; ``python`` means that of the workers."""
    argv = shlex.split(command) if isinstance(command, str) else [str(each) for each in command]
    if len(argv) == 1 and argv[0].endswith(".py"):
        argv = ["python", *argv]
    return (sys.executable, *argv[1:]) if argv[0] in ("python", "python3") else tuple(argv)


def _find_command_faults(command: Any) -> list[Fault]:
    allowed = 'program and arguments, such as ["python", "-m", "trainer.task"]'
    parts = command
    if isinstance(command, str):
        try:
            parts = shlex.split(command)
        except ValueError as error:
            return [Fault("command", describe_value(command), f"{allowed} ({error})")]
    is_list = isinstance(parts, (list, tuple)) and parts
    if not is_list or not all(isinstance(each, (str, Path)) and str(each) for each in parts):
        return [Fault("command", describe_value(command), allowed)]
    return []
