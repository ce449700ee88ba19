"""Public functions of the sizing calculator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, overload

from hyperplane import config
from hyperplane.calculator.advice import SizingAdvice
from hyperplane.calculator.measure import DataSize, measure
from hyperplane.calculator.measured_rules import advise_measured, choose_rules
from hyperplane.clusters.registry import ENGINES
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import gb_to_bytes, whole_number
from hyperplane.sizing import fit
from hyperplane.sizing.recommend import Basis, SizingQuestion, Tasks, apply_rules
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.forecasts.measured_advice import MeasuredAdvice

#: Largest accepted number of cores, GB, GPUs or pieces.
_MAXIMUM = 10**12


@overload
def size_cluster(
    data: str | float | os.PathLike[str] | Sequence[str] | tuple[float, str],
    operation: str | None = None,
    tasks: Tasks = "light",
    *,
    rules: Literal["measured", "classic"] | None = None,
    basis: Basis = "allocatable",
    pool: str | PoolSpec | None = None,
    moves_data: bool = True,
    pieces: int | None = None,
) -> SizingAdvice: ...
@overload
def size_cluster(
    data: Any,
    operation: str | None = None,
    tasks: Tasks = "light",
    *,
    rules: Literal["measured", "classic"] | None = None,
    basis: Basis = "allocatable",
    pool: str | PoolSpec | None = None,
    moves_data: bool = True,
    pieces: int | None = None,
) -> SizingAdvice | MeasuredAdvice: ...
@check_call
def size_cluster(
    data: Any,
    operation: str | None = None,
    tasks: Tasks = "light",
    *,
    rules: Literal["measured", "classic"] | None = None,
    basis: Basis = "allocatable",
    pool: str | PoolSpec | None = None,
    moves_data: bool = True,
    pieces: int | None = None,
) -> SizingAdvice | MeasuredAdvice:
    """Recommend the size of a cluster for a job.

    Parameters
    ----------
    data : str, number, tuple, path, collection or Forecast
        Size of the uncompressed data: ``"100GB"``; a number of GB; ``(number, "MB")``; a path, glob
        or fsspec URL, or a list of these, which are measured; or a Dask, pandas, NumPy or xarray
        collection. For ``rules="measured"`` a Dask collection is the job itself, as it is before
        ``compute()``; or a forecast of one.
    operation : str, optional
        What is done with the data: ``"light"``, ``"medium"`` (the default) or ``"heavy"``, or an
        operation: ``"filter"``, ``"groupby"``, ``"join"``, ``"set_index"`` and others in
        ``config/sizing.yaml``.
    tasks : {"light", "heavy"}
        ``"heavy"`` for a job of many tasks, which needs cores.
    rules : {"measured", "classic"}, optional
        ``"measured"`` runs a sample of the tasks of a Dask collection and simulates all layouts
        (:func:`forecast`); ``"classic"`` applies the published rules to the size of the data. By
        default measured for a forecast, and for a Dask collection without any of the arguments that
        describe the operation; otherwise classic.
    basis : {"allocatable", "nominal"}
        Whether to divide by the allocatable memory of a node, or by its nominal memory as the
        published rule of thumb does.
    pool : str or PoolSpec, optional
        Pool to use instead of the one that the rules choose.
    moves_data : bool
        False for work that neither sorts nor shuffles nor moves large pieces of data.
    pieces : int, optional
        Number of jobs into which the data is split, instead of the number that the rules choose.

    Returns
    -------
    SizingAdvice or MeasuredAdvice
        Memory, pool, nodes, worker layout, reasons, warnings and alternatives. If a collection
        cannot be measured, it is the advice of the published rules, and a warning says why.

    Raises
    ------
    RequestError
        With every fault of the call.

    Notes
    -----
    By the published rules the memory is the size of the data x 4 (light), x 8 (medium) or x 48
    (heavy), and the number of nodes is that memory / memory of a node, as the platform's
    documentation publishes. Its figures mix two bases: 25 nodes of 32_32 for 800 GB divides by the
    nominal 32 GB, 8 nodes of 16_128 by the allocatable 110 GB. See ``docs/explanation/sizing.md``.

    Examples
    --------
    >>> advice = size_cluster("100GB", "groupby", tasks="heavy")
    >>> advice.memory_gb, advice.pool.name, advice.nodes
    (800.0, '32_32', 30)
    >>> size_cluster("100GB", "groupby", tasks="heavy", basis="nominal").nodes
    25
    """
    described = {
        "operation": operation, "tasks": tasks, "basis": basis, "moves_data": moves_data,
        "pieces": pieces,
    }  # fmt: skip
    faults = [
        Fault(name, repr(value)[:80], " or ".join(repr(choice) for choice in allowed))
        for name, value, allowed in (
            ("tasks", tasks, ("light", "heavy")),
            ("basis", basis, ("allocatable", "nominal")),
            ("moves_data", moves_data, (True, False)),
            *([] if rules is None else [("rules", rules, ("measured", "classic"))]),
        )
        # Arrays and pandas objects cannot be compared: `in` would raise.
        if not isinstance(value, str | bool) or value not in allowed
    ]
    count = whole_number(pieces)
    if pieces is not None and (count is None or not 1 <= count <= _MAXIMUM):
        faults.append(
            Fault(
                "pieces", repr(pieces)[:80], f"a whole number of at least 1{_describe_limit(count)}"
            )
        )
    config.check_sections(ENGINES)
    sizing_rules = config.sizing_rules()
    operation = "medium" if operation is None else operation
    chosen, measured = None, DataSize(1, "")
    try:
        sizing_rules.weight(operation)
    except RequestError as error:
        faults += error.faults
    try:
        chosen = config.get_pool(pool) if pool is not None else None
    except RequestError as error:
        faults += error.faults
    reasons: tuple[str, ...] = ()
    if not faults and choose_rules(data, rules, described) == "measured":
        found = advise_measured(data, chosen)
        if not isinstance(found, tuple):
            return found
        reasons = found
    try:
        measured = measure(data)
    except RequestError as error:
        faults += error.faults
    if faults:
        raise RequestError(faults)
    question = SizingQuestion(measured.size, operation, tasks, basis, chosen, moves_data, count)
    answer = apply_rules(question, sizing_rules, config.pools())
    answer = replace(answer, warnings=(*reasons, *answer.warnings))
    return SizingAdvice(question, answer, measured)


@check_call
def fit_workers(
    pool: str | PoolSpec,
    *,
    nprocs: int | None = None,
    nthreads: int | None = None,
    ram_gb_per_proc: float | None = None,
) -> WorkerSpec:
    """Propose a layout of worker processes for one node of a pool.

    Parameters
    ----------
    pool : str or PoolSpec
        The pool, by any of its names.
    nprocs, nthreads : int, optional
        Fixed number of processes, or of threads of each; other values are proposed.
    ram_gb_per_proc : float, optional
        Fixed memory of a process in GB. If not all processes that the cores suggest fit, fewer are
        proposed; never more.

    Returns
    -------
    WorkerSpec

    Raises
    ------
    RequestError
        If a value is invalid.
    UnknownPool
        If there is no such pool.
    DoesNotFit
        If the fixed values exceed a node of the pool.

    Notes
    -----
    The layout follows Dask's square-root rule, applied to the largest number of cores for which it
    results in at most twice as many processes as threads per process. Up to three cores get one
    process. Dask's rule alone results in 47 x 2 on 94 cores. See :mod:`hyperplane.sizing.fit`.

    Examples
    --------
    >>> print(fit_workers("16_16"))
    5 processes x 3 threads x 2.4 GB
    """
    return fit.propose_worker(
        config.get_pool(pool), nprocs=nprocs, nthreads=nthreads, ram_gb_per_proc=ram_gb_per_proc
    )


@check_call
def closest_pool(cores: float, ram_gb: float, ngpus: int = 0) -> PoolSpec:
    """Find the smallest pool whose nodes have enough allocatable cores and memory.

    Parameters
    ----------
    cores : float
        Allocatable cores that a node must have.
    ram_gb : float
        Allocatable memory in GB that a node must have.
    ngpus : int
        GPUs that a node must have.

    Returns
    -------
    PoolSpec

    Raises
    ------
    RequestError
        If an argument is not a number, is negative or exceeds 10**12.
    DoesNotFit
        If no pool is large enough; the error names the largest.

    Examples
    --------
    >>> closest_pool(15, 12).name, closest_pool(15, 110).name, closest_pool(4, 4).name
    ('16_16', '16_128', '8_8')
    """
    check(
        Fault(name, repr(value)[:80], f"a number of at least 0{_describe_limit(value)}")
        for name, value in (("cores", cores), ("ram_gb", ram_gb), ("ngpus", ngpus))
        if not _is_amount(value)
    )
    return fit.smallest_pool(config.pools().values(), cores, gb_to_bytes(ram_gb), ngpus)


def _describe_limit(value: object) -> str:
    """Return the text of the upper limit for a number that exceeds it, otherwise an empty one."""
    return f" and at most {_MAXIMUM:g}" if isinstance(value, Real) and value > _MAXIMUM else ""  # type: ignore[operator]


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    # NumPy's float16 cannot represent the limit.
    number: Any = value.item() if hasattr(value, "item") else value
    return bool(0 <= number <= _MAXIMUM)
