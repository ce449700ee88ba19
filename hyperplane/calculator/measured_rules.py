"""Which rules the calculator applies, and advice by a sample instead of the published rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import DoesNotFit, EngineUnavailable, Fault, RequestError
from hyperplane.spec.pool import PoolSpec

if TYPE_CHECKING:
    from hyperplane.forecasts.measured_advice import MeasuredAdvice

#: Values of the arguments that describe an operation, if a caller passes none.
_DEFAULTS = {
    "operation": None, "tasks": "light", "basis": "allocatable", "moves_data": True, "pieces": None,
}  # fmt: skip


def choose_rules(data: Any, rules: str | None, described: Mapping[str, Any]) -> str:
    """Return ``"measured"`` or ``"classic"``.

    An operation is what will be done with the data. Without one, a Dask collection is the job.

    Raises
    ------
    RequestError
        If the rules that are asked for cannot be applied to the other arguments.
    """
    given = [name for name, value in described.items() if value != _DEFAULTS[name]]
    if rules is None:
        measurable = _is_forecast(data) or (_is_dask_collection(data) and not given)
        return "measured" if measurable else "classic"
    faults = []
    if rules == "classic" and _is_forecast(data):
        advice = "pass the data and the operation"
        faults.append(Fault("rules", "'classic'", "'measured' for a forecast", advice))
    if rules == "measured":
        faults = [
            Fault(
                name, repr(described[name])[:80], f"{_DEFAULTS[name]!r} with rules='measured'",
                "the sample shows what the job does",
            )
            for name in given
        ]  # fmt: skip
        if not _is_forecast(data) and not _is_dask_collection(data):
            allowed = "a Dask collection or a forecast with rules='measured'"
            advice = "pass the collection before compute(), or rules='classic'"
            faults.append(Fault("data", repr(data)[:80], allowed, advice))
    if faults:
        raise RequestError(faults)
    return rules


def advise_measured(data: Any, pool: PoolSpec | None) -> MeasuredAdvice | tuple[str, ...]:
    """Return the advice for a collection or a forecast, or why there is none.

    Raises
    ------
    DoesNotFit
        If the sample shows that the job fits on no layout.
    RequestError
        For a forecast without advice: it has no data to which the published rules apply.
    """
    if _is_forecast(data):
        found: MeasuredAdvice = data.advise(pool, local=False)
        return found
    from hyperplane.cluster import plan_cluster
    from hyperplane.forecasts.forecast import forecast

    try:
        # Started one by one, as the processes of nodes are, and more than one, as on all pools.
        plan = plan_cluster(
            num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=1, cores_per_worker=2,
            engine="local", engine_options={"start_method": "spawn"}, local_fit="exact",
        )  # fmt: skip
        sampled = forecast(data, plan, history=False)  # layouts are simulated from a sample
        if sampled.job is None:
            return tuple(f"not measured: {reason}" for reason in sampled.reasons)
        return sampled.advise(pool, local=False)
    except DoesNotFit:  # the published rules know less of the job than its sample
        raise
    except RequestError as error:
        return tuple(f"not measured: {fault}" for fault in error.faults)
    except EngineUnavailable as error:
        return (f"not measured: {error}",)


def _is_forecast(data: Any) -> bool:
    # Not imported for it: a forecast exists only if its module is loaded.
    module = sys.modules.get("hyperplane.forecasts.result")
    return module is not None and isinstance(data, module.Forecast)


def _is_dask_collection(data: Any) -> bool:
    if "dask" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    return bool(is_dask_collection(data))
