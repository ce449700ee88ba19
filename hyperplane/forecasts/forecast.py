"""Forecast of the memory and the time of a Dask job from a sample of its tasks."""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import dask
from dask.base import is_dask_collection

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_bytes, format_number
from hyperplane.forecasts import reasons
from hyperplane.forecasts.collection_graph import (
    CollectionGraph,
    has_exchanges,
    has_row_shuffles,
    make_request,
    materialize,
)
from hyperplane.forecasts.evaluate import (
    SampledJob,
    evaluate_timelines,
    name_terms,
    simulate_layout,
)
from hyperplane.forecasts.exact_inputs import MOST_REPEATED, explain_limit, find_exact, plan_steps
from hyperplane.forecasts.intervals import (
    CPU_DEVIATION,
    WALL_DEVIATION,
    find_time_interval,
)
from hyperplane.forecasts.key_columns import find_key_columns
from hyperplane.forecasts.layout import (
    SHUFFLE_METHOD,
    Layout,
    find_layout,
    find_shuffle_method,
)
from hyperplane.forecasts.model import build_model
from hyperplane.forecasts.past_runs import forecast_from_runs
from hyperplane.forecasts.probe import run_sample
from hyperplane.forecasts.records import KeyColumns, SampleRequest, SampleResult
from hyperplane.forecasts.result import Forecast
from hyperplane.forecasts.sample_plan import SampleStep
from hyperplane.history.program import find_program
from hyperplane.spec.plan import ClusterPlan


@check_call(outcome="nothing was sampled")
def forecast(
    collection: Any,
    plan: ClusterPlan | None = None,
    *,
    budget: float = 0.05,
    confidence: float = 0.9,
    history: bool = True,
) -> Forecast:
    """Forecast the memory and the time that a job takes, from its earlier runs or a sample.

    Parameters
    ----------
    collection : Dask collection
        A dataframe, array, bag or delayed object. ``hyperplane.save(df, url, compute=False)`` and
        ``df.to_parquet(url, compute=False)`` are, too; while they are sampled, nothing is written
        to the URL.
    plan : ClusterPlan, optional
        Where the job is to run; by default on the running cluster.
    budget : float
        Share of the work that the sample may take, above 0, at most 1. A quarter of this share of
        the tasks that read data is run, at least three; the rest is for the start of the process of
        the sample and later tasks.
    confidence : float
        Nominal probability that the peak is in the interval, above 0.5 and at most 0.99.
    history : bool
        Whether the records of earlier runs of the job are used, if there are any. Nothing is
        sampled then.

    Returns
    -------
    Forecast
        Prints as a table. ``peak`` is the largest memory of the largest worker process.

    Raises
    ------
    RequestError
        With every fault of the call.

    Notes
    -----
    The sample runs in a separate process on this machine, one task at a time, never on the cluster.
    A job that cannot be forecast is not an error: ``refused`` is then true, and ``reasons`` says
    why. Functions of the job run in the sample as they are: those that write or send anything do so
    for the sampled tasks, some of which run twice.

    Examples
    --------
    >>> import dask.array as da
    >>> import hyperplane
    >>> plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=2, ram_gb_per_proc=2)
    >>> found = hyperplane.forecast(da.random.random((4000, 4000), chunks=(500, 4000)).sum(), plan)
    >>> found.refused, found.low < found.peak < found.high
    (False, True)
    """
    return forecast_program(
        collection, plan, find_program(), budget=budget, confidence=confidence, history=history
    )


def forecast_program(
    collection: Any,
    plan: ClusterPlan | None,
    program: str,
    *,
    budget: float,
    confidence: float,
    history: bool,
) -> Forecast:
    """Forecast a job of a program, whose name is that of its records; see :func:`forecast`."""
    layout = _check(collection, plan, budget, confidence, history)
    settings = {SHUFFLE_METHOD: find_shuffle_method(layout), **layout.settings}
    try:
        graph = materialize(collection, settings)
    except Exception as error:  # noqa: BLE001 - any error while the user's collection is optimized
        text = f"the graph cannot be built: {type(error).__name__}: {error}"[:500]
        return _refuse(layout, confidence, [text])
    unused = ""
    if history:
        past, unused = forecast_from_runs(graph, layout, confidence, program)
        if past is not None:
            spilling = _find_spilling(past.high, layout)
            resample = partial(
                forecast_program, collection, plan, program,
                budget=budget, confidence=confidence, history=False,
            )  # fmt: skip
            texts = (*spilling, *past.reasons)
            return replace(past, refused=bool(spilling), reasons=texts, resample=resample)
    found = reasons.find_graph_reasons(graph)
    if found:
        return _refuse(layout, confidence, found, graph)
    before = _child_seconds()
    steps, result = _sample(graph, layout, find_key_columns(collection), budget)
    cost = _child_seconds() - before
    if result.error:
        return _refuse(layout, confidence, [f"the sample failed: {result.error}"], graph, cost)
    evaluated = _evaluate(graph, steps, result, layout, plan, confidence, cost)
    return replace(evaluated, reasons=(*evaluated.reasons, *([unused] if unused else [])))


def _check(collection: Any, plan: Any, budget: Any, confidence: Any, history: Any) -> Layout:
    faults = []
    if not isinstance(history, bool):
        faults.append(Fault("history", describe_value(history), "True or False"))
    if not is_dask_collection(collection):
        allowed = "a Dask dataframe, array, bag or delayed object"
        advice = "pass the collection before compute()"
        faults.append(Fault("collection", describe_value(collection), allowed, advice))
    for name, value, least, most in (
        ("budget", budget, 0, 1),
        ("confidence", confidence, 0.5, 0.99),
    ):
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not least < value <= most:
            allowed = f"a number above {least} and at most {most}"
            faults.append(Fault(name, describe_value(value), allowed))
    layout = None
    try:
        layout = find_layout(plan)
    except RequestError as error:
        faults += error.faults
    if faults or layout is None:
        raise RequestError(faults)
    return layout


def _sample(
    graph: CollectionGraph, layout: Layout, keys: Sequence[KeyColumns], budget: float
) -> tuple[list[SampleStep], SampleResult]:
    """Run a sample; again, with their own inputs for some classes, if their tasks fail."""
    exact: frozenset[int] = frozenset()
    for _ in range(1 + MOST_REPEATED):
        steps = plan_steps(graph, budget, exact)
        result = run_sample(
            partial(_make_request, graph, steps, keys, budget),
            layout.environ,
            layout.modules,
            layout.forked,
            layout.runs_main,
        )
        if result.failed is None:
            break
        before, exact = exact, find_exact(graph, steps, result.failed, exact)
        limit = explain_limit(graph, exact)
        if exact == before or limit:
            error = f"{result.error}; {limit}" if limit else result.error
            return steps, replace(result, error=error)
    return steps, result


def _make_request(
    graph: CollectionGraph,
    steps: list[SampleStep],
    keys: Sequence[KeyColumns],
    budget: float,
    folder: str,
) -> SampleRequest:
    return make_request(graph, steps, folder, _worker_config(), keys, budget)


def _worker_config() -> dict[str, Any]:
    """Return the settings that tasks may read; those of clients would connect to a cluster."""
    return {
        name: section
        for name, section in dask.config.config.items()
        if name in ("array", "dataframe", "distributed") and isinstance(section, Mapping)
    }


def _child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _refuse(
    layout: Layout,
    confidence: float,
    found: list[str],
    graph: CollectionGraph | None = None,
    cost: float = 0.0,
) -> Forecast:
    tasks = 0 if graph is None else len(graph.tasks)
    return Forecast(
        0, 0, 0, 0, 0.0, 0.0, True, tuple(found), cost, confidence,
        layout=str(layout), limit=layout.limit, tasks=tasks,
    )  # fmt: skip


def _evaluate(
    graph: CollectionGraph,
    steps: list[SampleStep],
    result: SampleResult,
    layout: Layout,
    plan: ClusterPlan | None,
    confidence: float,
    cost: float,
) -> Forecast:
    model = build_model(graph.units, graph.info, steps, result)
    job = SampledJob(
        model=model,
        kinds=graph.units.kinds,
        layout=layout,
        plan=plan,
        confidence=confidence,
        has_shuffles=bool(graph.shuffles),
        has_exchanges=has_exchanges(graph) and layout.processes > 1,
        depends_on_method=has_row_shuffles(graph),
        exact=result.exact,
        refusals=tuple(reasons.find_sample_refusals(graph, steps, result)),
        tasks=len(graph.tasks),
        read=graph.read_bytes,
    )
    found = evaluate_timelines(job, simulate_layout(model, layout), layout)
    interval = found.interval
    notes = reasons.find_notes(graph, result, model, found.typical)
    job = replace(job, notes=tuple(notes))
    refusals = [*reasons.find_unequal(job.kinds, model, found.typical), *job.refusals]
    refusals += _find_spilling(found.demand, layout)
    cpu = find_time_interval(model.cpu, CPU_DEVIATION, confidence)
    wall = find_time_interval(found.seconds, WALL_DEVIATION, confidence)
    return Forecast(
        peak=round(interval.value),
        low=round(interval.low),
        high=round(interval.high),
        total=round(found.total),
        cpu_s=cpu.value,
        cpu_low=cpu.low,
        cpu_high=cpu.high,
        wall_s=wall.value,
        wall_low=wall.low,
        wall_high=wall.high,
        refused=bool(refusals),
        reasons=tuple(refusals or notes),
        cost=cost,
        confidence=confidence,
        terms=tuple(name_terms(found.typical.terms, job.kinds, found.gaps)),
        layout=str(layout),
        limit=layout.limit,
        read=job.read,
        shuffled=round(model.shuffled),
        written=round(model.written),
        tasks=job.tasks,
        keys=result.keys,
        sampled=sum(len(graph.units.units[step.unit].members) for step in steps),
        job=job,
        typical=found.typical,
        gaps=found.gaps,
        spill=layout.spill,
    )


def _find_spilling(high: float, layout: Layout) -> list[str]:
    """Return why a peak is not reliable that is above the spill threshold."""
    spill = layout.spill * layout.limit
    if not spill or high <= spill:
        return []
    return [
        f"up to {format_bytes(round(high))} are needed without spilling, and from "
        f"{format_bytes(round(spill))} on ({format_number(layout.spill)} of the limit) results "
        "are written to disk, which changes memory and time; give each process more memory"
    ]
