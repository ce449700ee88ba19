"""The sources of a shard's index and count."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from hyperplane import RequestError, Shard, shard

OWN = {"HYPERPLANE_SHARD_INDEX": "3", "HYPERPLANE_SHARD_COUNT": "8"}
CLOUD = {"CLOUD_RUN_TASK_INDEX": "2", "CLOUD_RUN_TASK_COUNT": "4"}
BATCH = {"AWS_BATCH_JOB_ARRAY_INDEX": "5", "AWS_BATCH_JOB_ARRAY_SIZE": "6"}


def slurm(number, least, most, step=1, count=None):
    variables = {"ID": number, "MIN": least, "MAX": most, "STEP": step}
    if count is not None:
        variables["COUNT"] = count
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in variables.items()}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("HYPERPLANE_SHARD", "SLURM_", "JOB_COMP", "AWS_BATCH", "CLOUD_RUN")):
            monkeypatch.delenv(name)

    def put(*variables):
        for group in variables:
            for name, value in group.items():
                monkeypatch.setenv(name, value)

    return put


def faults(*arguments):
    with pytest.raises(RequestError) as raised:
        shard(*arguments)
    return raised.value.faults


def test_without_sources_there_is_one_shard():
    assert shard() == Shard(0, 1) == (0, 1)
    assert pickle.loads(pickle.dumps(shard())) == (0, 1)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (OWN, (3, 8)),
        (CLOUD, (2, 4)),
        (BATCH, (5, 6)),
        (slurm(0, 0, 9), (0, 10)),
        (slurm(7, 3, 9, 2, 4), (2, 4)),
        (slurm(10, 1, 10, 3, 4), (3, 4)),
        ({"JOB_COMPLETION_INDEX": "1", "JOB_COMPLETION_COUNT": "2"}, (1, 2)),
        ({"JOB_COMPLETION_INDEX": "1", "HYPERPLANE_SHARD_COUNT": "3"}, (1, 3)),
        ({"SLURM_ARRAY_TASK_ID": "4", "SLURM_ARRAY_TASK_MIN": "1", **CLOUD}, None),
        ({**BATCH, "JOB_COMPLETION_INDEX": "5"}, (5, 6)),
        ({"HYPERPLANE_SHARD_COUNT": "1"}, (0, 1)),
    ],
)
def test_the_variables_of_each_runner_are_read(environment, variables, expected):
    environment(variables)
    if expected is None:
        faults()
    else:
        assert shard() == expected


def test_arguments_precede_our_variables_and_these_precede_the_runner(environment):
    environment(OWN, CLOUD)
    assert shard() == (3, 8)
    assert shard(0, 2) == (0, 2)
    environment({"HYPERPLANE_SHARD_INDEX": "x", "CLOUD_RUN_TASK_COUNT": "y"})
    assert shard(np.int64(1), np.int64(2)) == (1, 2)


def test_a_count_completes_the_index_of_kubernetes(environment):
    environment({"JOB_COMPLETION_INDEX": "4"})
    assert shard(count=5) == (4, 5)
    [fault] = faults()
    assert fault.where == "JOB_COMPLETION_INDEX"
    assert "HYPERPLANE_SHARD_COUNT" in fault.advice
    [fault] = faults(None, 4)
    assert (fault.where, fault.asked) == ("JOB_COMPLETION_INDEX", "4")
    assert fault.allowed.startswith("0 to 3")


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"HYPERPLANE_SHARD_INDEX": "1"}, ["HYPERPLANE_SHARD_INDEX"]),
        ({"HYPERPLANE_SHARD_COUNT": "4"}, ["HYPERPLANE_SHARD_COUNT"]),
        ({"CLOUD_RUN_TASK_COUNT": "4"}, ["CLOUD_RUN_TASK_COUNT"]),
        ({"CLOUD_RUN_TASK_INDEX": "0"}, ["CLOUD_RUN_TASK_INDEX"]),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "0"}, ["AWS_BATCH_JOB_ARRAY_INDEX"]),
        ({**OWN, "HYPERPLANE_SHARD_INDEX": "8"}, ["HYPERPLANE_SHARD_INDEX"]),
        (
            {"HYPERPLANE_SHARD_INDEX": "-1", "HYPERPLANE_SHARD_COUNT": "0"},
            ["HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT"],
        ),
        ({**CLOUD, "CLOUD_RUN_TASK_INDEX": "²"}, ["CLOUD_RUN_TASK_INDEX"]),
        ({**CLOUD, "CLOUD_RUN_TASK_INDEX": ""}, ["CLOUD_RUN_TASK_INDEX"]),
        ({"SLURM_ARRAY_TASK_ID": "3"}, ["SLURM_ARRAY_TASK_ID"]),
        (slurm(4, 1, 9, 2), ["SLURM_ARRAY_TASK_ID"]),
        (slurm(0, 1, 4), ["SLURM_ARRAY_TASK_ID"]),
        (slurm(3, 1, 7, 1, 3), ["SLURM_ARRAY_TASK_COUNT"]),
        ({**CLOUD, **BATCH}, ["CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"]),
        ({**CLOUD, "HYPERPLANE_SHARD_COUNT": "9"}, ["CLOUD_RUN_TASK_COUNT"]),
    ],
)
def test_faults_name_the_variables(environment, variables, where):
    environment(variables)
    assert [fault.where for fault in faults()] == where


def test_variables_of_two_runners_with_different_values_are_refused(environment):
    environment(CLOUD, BATCH)
    first, second = faults()
    assert "AWS_BATCH_JOB_ARRAY_INDEX" in first.allowed
    assert "AWS_BATCH_JOB_ARRAY_SIZE" in second.allowed
    assert "HYPERPLANE_SHARD_INDEX" in first.advice


def test_an_argument_that_contradicts_the_runner_is_refused(environment):
    environment(CLOUD)
    [fault] = faults(None, 8)
    assert fault.where == "CLOUD_RUN_TASK_COUNT"
    assert fault.allowed == "8, the value of count"


def test_the_count_of_a_runner_is_not_used_with_another_index(environment):
    environment(slurm(3, 0, 7, 1, 8))
    assert shard(count=8) == (3, 8)
    [fault] = faults(2)
    assert (fault.where, fault.advice) == ("index", "give count, or set HYPERPLANE_SHARD_COUNT")
    environment({"HYPERPLANE_SHARD_INDEX": "2"})
    [fault] = faults()
    assert fault.where == "HYPERPLANE_SHARD_INDEX"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ((0, 0), ["count"]),
        ((-1, 2), ["index"]),
        ((2, 2), ["index"]),
        ((1.0, "2"), ["index", "count"]),
        ((True, 2), ["index"]),
        ((None, 2), ["count"]),
        ((1, None), ["index"]),
    ],
)
def test_arguments_are_checked(arguments, where):
    assert [fault.where for fault in faults(*arguments)] == where


@pytest.mark.process
def test_reading_the_shard_imports_no_data_libraries():
    code = """
import sys
import hyperplane
hyperplane.shard(), hyperplane.output_path("{idx}", 1)
assert not {"pandas", "polars", "pyarrow", "fsspec", "distributed"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250)
