"""Write the record of a run when its cluster closes, and summarize it."""

from __future__ import annotations

import logging
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from hyperplane import config
from hyperplane.core.errors import HyperplaneError
from hyperplane.guard.run_cost import estimate_cost
from hyperplane.guard.run_summary import summarize_run
from hyperplane.history.program import digest_program, identify_program
from hyperplane.history.run_record import PlanSummary, RunRecord, new_run_name
from hyperplane.history.store import copy_run, write_run
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import MachineSettings

logger = logging.getLogger(__name__)

#: Packages whose versions a record has, if they are loaded.
PACKAGES = ("hyperplane", "dask", "distributed", "numpy", "pandas", "pyarrow", "polars", "xarray")


class RunRecorder:
    """Writer of the record of one cluster, in the process that started it.

    Parameters
    ----------
    plan : ClusterPlan
        Plan of the cluster, which is about to start.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self.started = time.time()
        self._code = digest_program()

    @property
    def spill(self) -> float | Literal[False]:
        """The threshold of the memory policy above which a worker is watched."""
        return DaskOptions.of(self.plan.options).memory.spill

    @property
    def plan_fields(self) -> dict[str, Any]:
        """What a record has of the plan, as values that JSON can represent."""
        return summarize_plan(self.plan).model_dump()

    def finish(self, usage: Mapping[str, Any] | None, reason: str) -> str:
        """Write the record, and return a summary for the user, or an empty text.

        Parameters
        ----------
        usage : mapping or None
            Result of :meth:`~hyperplane.guard.usage.UsageMonitor.usage`; None if the scheduler
            could not be asked.
        reason : str
            Why the cluster closes.
        """
        try:
            record = self._record(usage or {}, reason)
            pools, currency = list(config.pools().values()), config.sizing_rules().currency
            fix = str((usage or {}).get("fix", ""))
            summary = summarize_run(record, pools, currency, fix)
        except (ValueError, HyperplaneError):
            logger.warning("the run of %s has no record", self.plan.name, exc_info=True)
            return ""
        try:
            copy_run(write_run(record))
        except (OSError, RuntimeError, HyperplaneError) as error:
            # Such as a full disk, or no home directory: a reason to know, not to disturb.
            logger.info("the record of %s was not written: %s", self.plan.name, error)
        return summary

    def _record(self, usage: Mapping[str, Any], reason: str) -> RunRecord:
        plan = self.plan
        record = RunRecord(
            **{
                "code": self._code,
                "name": new_run_name(plan.name, self.started),
                "cluster": plan.name,
                "started": self.started,
                "ended": time.time(),
                "exit_reason": reason,
                "plan": summarize_plan(plan),
                "versions": loaded_versions(),
                "workers": usage.get("workers", ()),
                "tasks": usage.get("tasks", ()),
                "computations": usage.get("computations", ()),
                "timeline": usage.get("timeline"),
                **identify_program(),
            }
        )
        cost, currency = estimate_cost(plan, record.plan.pool, record.timeline)
        return record.model_copy(update={"cost": cost, "currency": currency})


def summarize_plan(plan: ClusterPlan) -> PlanSummary:
    """Return what a record has of a plan."""
    tuning, pool = getattr(plan.options, "tuning", None), plan.pool
    # On one machine the pool is only the smallest one of the requested size.
    uses_pool = plan.request.pool is not None or not isinstance(plan.settings, MachineSettings)
    memory = getattr(plan.options, "memory", None)
    return PlanSummary(
        engine=plan.engine,
        framework=plan.framework,
        pool=pool.name if pool is not None and uses_pool else "",
        nodes=plan.nodes,
        max_nodes=plan.nodes if plan.max_nodes is None else plan.max_nodes,
        nprocs=plan.worker.nprocs,
        nthreads=plan.worker.nthreads,
        ram_per_proc=plan.worker.ram_per_proc,
        tuning=getattr(tuning, "name", ""),
        budget="" if plan.request.budget is None else str(plan.request.budget),
        **{name: float(getattr(memory, name, 0)) for name in ("spill", "pause", "terminate")},
    )


class ProcessPrice(NamedTuple):
    """Price of a worker process for an hour, in a currency that may be empty."""

    amount: float
    currency: str


def find_process_price(plan: ClusterPlan) -> ProcessPrice | None:
    """Return the price of a worker process of a plan; None if its pool has none."""
    pool = config.pools().get(summarize_plan(plan).pool)
    if pool is None or pool.price_per_hour is None:
        return None
    amount = pool.price_per_hour / max(1, plan.worker.nprocs)
    return ProcessPrice(amount, config.sizing_rules().currency)


def loaded_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that this process has loaded."""
    loaded = {name: sys.modules[name] for name in PACKAGES if name in sys.modules}
    versions = {name: str(getattr(module, "__version__", "")) for name, module in loaded.items()}
    return {"python": platform.python_version(), **versions}
