"""The meter for the budget of a plan."""

from __future__ import annotations

from hyperplane.guard.budget import BudgetMeter
from hyperplane.spec.plan import ClusterPlan


def new_budget_meter(plan: ClusterPlan) -> BudgetMeter | None:
    """Return the meter for the budget of a plan; None if it has no budget."""
    budget = plan.request.budget
    if budget is None:
        return None
    if not budget.currency or plan.pool is None or plan.pool.price_per_hour is None:
        return BudgetMeter(budget.amount, "core-hours", None)
    return BudgetMeter(
        budget.amount, budget.currency, plan.pool.price_per_hour / plan.worker.nprocs
    )
