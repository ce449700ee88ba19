"""Immutable models of requests, plans, pools and settings, without input or output."""

from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.worker import WorkerSpec

__all__ = ["ClusterPlan", "ClusterRequest", "MemoryPolicy", "PoolSpec", "WorkerSpec"]
