"""``preflight``: check a plan, its data and its output before anything starts."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hyperplane.clusters import interrupts, registry
from hyperplane.clusters.engine import Engine, StartedCluster, SupportsPreflight
from hyperplane.clusters.least_memory import find_memory_faults
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import EngineUnavailable, Fault, ReadError, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.missing_modules import MODULES, report_absent, report_nowhere
from hyperplane.guard.preflight.partition_memory import check_partition
from hyperplane.guard.preflight.paths import (
    find_data_bytes,
    find_local_paths,
    find_output_folder,
    is_paths,
)
from hyperplane.guard.preflight.program_modules import (
    SEARCH_SECONDS,
    ProgramModules,
    find_program_modules,
    find_unknown_modules,
)
from hyperplane.guard.preflight.report import PreflightFinding, PreflightReport
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check, run_checks
from hyperplane.guard.preflight.task_modules import TaskModules, find_task_modules
from hyperplane.spec.engine_names import DASK
from hyperplane.spec.plan import ClusterPlan

#: Engines whose workers are processes of this machine with the import path of this process.
_SAME_MACHINE = ("local", "cuda")

#: Engines and warnings on modules of the program that were logged: each start would repeat them.
_logged: set[tuple[str, PreflightFinding]] = set()

logger = logging.getLogger(__name__)


@check_call
def preflight(
    plan: ClusterPlan,
    *,
    output: str | os.PathLike[str] | None = None,
    data: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    sync: bool = False,
) -> PreflightReport:
    """Check a plan, its data and its output, within 5 seconds, before any worker starts.

    It compares the versions of packages with those of the workers, finds modules of this program
    that they lack, and checks credentials, write access, sizes of partitions, disks for spilled
    data, images, quotas and ports. What cannot be known before a start is reported as
    ``unchecked``. Nothing is started, and nothing stays behind.

    Parameters
    ----------
    plan : ClusterPlan
        Result of :func:`plan_cluster`.
    output : str or path, optional
        Path or URL that the job writes. A new object beside it is created and removed.
    data : path, URL, list of these, Dask collection or function, optional
        What the job reads, or a collection or function that it computes.
    storage_options : dict, optional
        Options for fsspec, for ``output`` and ``data``.
    sync : bool
        Whether ``initialize_cluster(..., sync=True)`` will ship local modules to the workers.

    Returns
    -------
    PreflightReport
        Prints as a table; ``faults`` and ``warnings`` have the findings, and
        ``raise_for_faults()`` raises a :class:`~hyperplane.errors.PreflightError`.

    Raises
    ------
    RequestError
        If an argument is invalid; what is wrong with the job is in the report.

    Examples
    --------
    >>> from hyperplane import plan_cluster, preflight
    >>> plan = plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    >>> report = preflight(plan)
    >>> report.faults
    ()
    """
    _check_arguments(plan, output, data, storage_options, sync)
    return _examine(plan, output, data, storage_options, sync)


def check_available(engine: Engine) -> None:
    """Raise an EngineUnavailable if an engine cannot be used here."""
    usable, reason = engine.available()
    if not usable:
        raise EngineUnavailable(engine.name, reason)


def check_before_start(
    engine: Engine, plan: ClusterPlan, sync: bool
) -> Callable[[StartedCluster], object]:
    """Check a plan before its start, log the warnings, and return a step that follows the start.

    With ``sync`` that step ships the local modules of the program. Otherwise it asks a worker for
    those of which nothing can be known before.

    Raises
    ------
    EngineUnavailable
        If the engine cannot be used here.
    PreflightError
        If the start would certainly fail.
    RequestError
        If the modules cannot be shipped.
    """
    check_available(engine)
    began = time.monotonic()
    check([*_find_sync_faults(plan, sync), *find_memory_faults(plan.framework, plan.worker)])
    checks = engine if plan.preflight and isinstance(engine, SupportsPreflight) else None
    program = _find_program(plan, sync=sync) if sync or checks else ProgramModules()
    request = PreflightRequest(program, sync=sync)
    follow = _create_shipment(plan, request) if sync else _do_nothing
    if checks is not None:
        report = _report(plan, checks.preflight_checks(plan, request), began)
        _log_warnings(plan.engine, report.warnings)
        report.raise_for_faults()
        if not sync and program.local and MODULES in {each.subject for each in report.unchecked}:
            follow = partial(_warn_of_absent_modules, plan.engine, program)
    return follow


def _find_program(
    plan: ClusterPlan, needed: Collection[str] = (), sync: bool = False
) -> ProgramModules:
    """Return the modules of the program; none if the workers import them as this process does.

    Those that are shipped must be complete, however long the search takes.
    """
    if plan.engine in _SAME_MACHINE:
        return ProgramModules()
    return find_program_modules(sys._getframe(1), needed, None if sync else SEARCH_SECONDS)


def _log_warnings(engine: str, findings: Iterable[PreflightFinding]) -> None:
    for finding in findings:
        if finding.subject == MODULES:
            if (engine, finding) in _logged:
                continue
            _logged.add((engine, finding))
        logger.warning("engine %s: %s", engine, finding)


def _do_nothing(started: StartedCluster) -> None:
    del started


def _warn_of_absent_modules(engine: str, program: ProgramModules, started: StartedCluster) -> None:
    """Log the local modules that a worker lacks; the cluster is good without the answer."""
    from hyperplane.clusters.dask.absent_modules import find_absent_modules

    try:
        absent = find_absent_modules(started.client, [module.name for module in program.local])
    except Exception as error:  # noqa: BLE001 - the worker may be lost, or fail to import a finder
        logger.info("engine %s: no worker has said which modules it lacks: %r", engine, error)
        return
    found = report_absent(program, absent)
    _log_warnings(engine, [] if found is None else [found])


def _create_shipment(
    plan: ClusterPlan, request: PreflightRequest
) -> Callable[[StartedCluster], object]:
    if plan.engine in _SAME_MACHINE or not request.program.local:
        return _do_nothing
    from hyperplane.clusters.dask.module_shipping import ship_modules
    from hyperplane.guard.module_archive import pack_modules

    return partial(ship_modules, pack_modules(request.program.local))


def _find_sync_faults(plan: ClusterPlan, sync: Any) -> list[Fault]:
    faults = find_flag_faults(sync=sync)
    if sync is True and plan.framework != DASK:
        faults.append(Fault("sync", "True", f"False with engine {plan.engine}"))
    return faults


def _check_arguments(plan: Any, output: Any, data: Any, options: Any, sync: Any) -> None:
    if isinstance(plan, ClusterPlan):
        faults = _find_sync_faults(plan, sync)
    else:
        faults = [Fault("plan", repr(plan)[:80], "a ClusterPlan, as plan_cluster returns it")]
    if output is not None and not isinstance(output, str | os.PathLike):
        faults.append(Fault("output", repr(output)[:80], "a path or URL of one file or folder"))
    is_collection = hasattr(data, "__dask_graph__") or callable(data)
    if data is not None and not is_collection and not is_paths(data):
        allowed = "a path, URL, list of these, Dask collection or function"
        faults.append(Fault("data", repr(data)[:80], allowed))
    if not isinstance(options, Mapping | None):
        type_name = f"a {type(options).__name__}"  # not its value, which may be a secret
        faults.append(Fault("storage_options", type_name, "a mapping for fsspec"))
    check(faults)


def _examine(
    plan: ClusterPlan,
    output: Any,
    data: Any,
    options: Mapping[str, Any] | None,
    sync: bool,
) -> PreflightReport:
    began = time.monotonic()
    # For workers that import as this process does the search is one of the checks.
    is_shared = plan.engine in _SAME_MACHINE
    tasks = find_task_modules(data) if _has_tasks(data) and not is_shared else TaskModules()
    program = _find_program(plan, tasks.needed | tasks.imported, sync)
    request = PreflightRequest(
        program=replace(program, absent=find_unknown_modules(tasks.certain)),
        needed=tasks.needed,
        inputs=tuple(find_local_paths(data)) if is_paths(data) else (),
        output_folder=None if output is None else find_output_folder(output),
        sync=sync,
    )
    checks = [
        *_checks_of_engine(plan, request),
        *_checks_of_imports(plan, data),
        *_checks_of_shipment(request),
        *_checks_of_data(plan, data, options),
        *([] if output is None else _checks_of_output(output, data, options)),
    ]
    try:
        return _report(plan, checks, began)
    finally:  # the thread of a check without an answer may end with the program
        request.remove_marker()


def _report(plan: ClusterPlan, checks: Sequence[Check], began: float) -> PreflightReport:
    # Ctrl-C interrupts only the wait, so that all checks that have begun are stopped and awaited.
    with interrupts.defer_interrupts():
        spent = time.monotonic() - began
        findings = run_checks(checks, spent=spent, waiting=interrupts.allow_interrupts)
    return PreflightReport(plan.name, plan.engine, tuple(findings), time.monotonic() - began)


def _checks_of_engine(plan: ClusterPlan, request: PreflightRequest) -> Sequence[Check]:
    engine = registry.load(plan.engine)
    usable, reason = engine.available()
    if not usable:
        return [Check("engine", lambda _: [PreflightFinding("engine", "fault", reason)])]
    if isinstance(engine, SupportsPreflight):
        return engine.preflight_checks(plan, request)
    text = f"engine {plan.engine} has no checks of workers before a start"
    return [Check("engine", lambda _: [PreflightFinding("engine", "unchecked", text)])]


def _has_tasks(data: Any) -> bool:
    return data is not None and not is_paths(data)


def _checks_of_imports(plan: ClusterPlan, data: Any) -> Iterator[Check]:
    """Yield the check of modules that tasks import, if the workers have those of this process."""
    if plan.engine in _SAME_MACHINE and _has_tasks(data):
        yield Check(MODULES, partial(_check_imports, data))


def _check_imports(data: Any, deadline: CheckDeadline) -> Iterator[PreflightFinding]:
    del deadline  # the search has a shorter one
    for name in find_unknown_modules(find_task_modules(data).certain):
        yield report_nowhere(name, "not on this machine")


def _checks_of_shipment(request: PreflightRequest) -> Iterator[Check]:
    """Yield the check of modules that are shipped: their files may be too large together."""
    if request.sync and request.program.local:
        from hyperplane.guard.module_archive import check_shipment

        yield Check(MODULES, lambda _: [check_shipment(request.program.local)])


def _checks_of_data(
    plan: ClusterPlan, data: Any, options: Mapping[str, Any] | None
) -> Iterator[Check]:
    if data is None or (callable(data) and not hasattr(data, "__dask_graph__")):
        return
    if is_paths(data):
        yield Check("data", partial(_check_input, data, options))
    yield Check("partitions", partial(_check_partitions, plan, data, options))


def _checks_of_output(output: Any, data: Any, options: Mapping[str, Any] | None) -> Iterator[Check]:
    yield Check("output", partial(_check_output, output, data, options))
    yield Check("output", partial(_check_saved, output, data, options))


# The next functions import modules that load fsspec, pandas and pyarrow: starts without data and
# output do not need them.


def _check_output(
    output: Any, data: Any, options: Mapping[str, Any] | None, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    from hyperplane.guard.preflight.storage import check_output

    del deadline
    return check_output(output, options, find_data_bytes(data))


def _check_saved(
    output: Any, data: Any, options: Mapping[str, Any] | None, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    from hyperplane.storage.output_checks import check_saved_output

    del deadline
    return check_saved_output(output, data, options)


def _check_input(
    data: Any, options: Mapping[str, Any] | None, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    from hyperplane.guard.preflight.storage import check_input

    del deadline
    return check_input(data, options)


def _check_partitions(
    plan: ClusterPlan, data: Any, options: Mapping[str, Any] | None, deadline: CheckDeadline
) -> Iterator[PreflightFinding]:
    del deadline
    from hyperplane.calculator.largest_partition import measure_largest_partition

    try:
        size, how = measure_largest_partition(data, options)
    except RequestError:  # reported by check_input
        return iter(())
    except ReadError as error:
        if isinstance(error.__cause__, ConnectionError | TimeoutError):
            raise
        advice = "replace the file, or leave it out"
        return iter([PreflightFinding("data", "fault", str(error), advice)])
    return check_partition(size, how, plan)
