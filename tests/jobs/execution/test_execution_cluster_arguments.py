"""The variable with the arguments of a step's cluster."""

from __future__ import annotations

import json

import pytest
from job_cases import bash

from hyperplane.jobs.execution.cluster_arguments import CLUSTER, cluster_variable


@pytest.mark.parametrize("name", ["ram_gb_per_proc", "ram_gb_proc"])
@pytest.mark.parametrize("value", [2, 2.0, "2", "2 GB", "2000 MB"])
def test_more_memory_multiplies_the_memory_of_a_cluster_in_any_notation(name, value):
    cluster = {name: value, "nprocs": 4}
    step = bash("big", "true", more_memory=1.5, cluster=cluster)
    assert json.loads(cluster_variable(step, 0)[CLUSTER]) == cluster
    assert json.loads(cluster_variable(step, 2)[CLUSTER]) == {"ram_gb_per_proc": 4.5, "nprocs": 4}
