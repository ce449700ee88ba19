"""Memory that results hold because their arrays are views of larger ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.forecasts.held_memory import measure_held, measure_overlaps
from hyperplane.forecasts.records import SampleRequest, SampleTask
from hyperplane.forecasts.sample_process import SampleRunner

BLOCK = np.zeros((1000, 10))  # 80,000 bytes
FRAME = pd.DataFrame(np.zeros((1000, 3)), columns=["a", "b", "c"])  # one block of 24,000 bytes


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (BLOCK, 0),
        (BLOCK[:10].copy(), 0),
        (BLOCK.T, 0),
        (BLOCK[:10], 79_200),
        (BLOCK[:10][:5].T, 79_600),
        ((BLOCK[:10], {"rest": [BLOCK[10:30]]}), 77_600),  # the block is held once
        (np.broadcast_to(BLOCK[:1], (10**6, 10)), 0),  # larger than what it is a view of
        (FRAME, 0),
        (FRAME["a"], 16_000),
        (FRAME.iloc[:5], 24_000 - 5 * 3 * 8),
        (pd.Series(["a", "b"], dtype="string[pyarrow]").iloc[:1], 0),
        ("text", 0),
        (None, 0),
    ],
)
def test_a_view_holds_all_of_its_array(value, held):
    assert measure_held(value) == held


def test_what_is_counted_elsewhere_is_not_held():
    assert measure_held(BLOCK[:10], [BLOCK]) == 0
    assert measure_held(BLOCK[:10], [{"other": BLOCK[5:]}]) == 0
    assert measure_held(FRAME.iloc[:5], [FRAME]) == 0
    assert measure_held(BLOCK[:10], [FRAME]) == 79_200


@pytest.mark.parametrize(
    ("values", "overlaps"),
    [
        ([BLOCK, BLOCK.copy()], 0),
        ([BLOCK, BLOCK[:10]], 800),
        ([BLOCK[:10], BLOCK[5:15], BLOCK[900:]], 0),  # less than the block, which is held
        ([BLOCK, {"all": BLOCK.T}, [BLOCK[:10]]], 80_800),
        ([BLOCK, np.broadcast_to(BLOCK[:1], (10**6, 10))], 0),
        ([FRAME, FRAME["a"]], 8_000),
        (["text", None], 0),
    ],
)
def test_results_that_are_views_of_each_other_are_in_memory_once(values, overlaps):
    assert measure_overlaps(values) == overlaps


def largest(block):
    return np.partition(block, -5, axis=0)[-5:]


def test_a_sample_counts_what_a_result_holds(tmp_path):
    tasks = (
        SampleTask((("block", Task("block", BLOCK.copy)),), {}, ("block",)),
        SampleTask(
            (("largest", Task("largest", largest, TaskRef("block"))),),
            {"block": (0, "block")},
            ("largest",),
        ),
    )
    records, _ = SampleRunner(SampleRequest(tasks), tmp_path).run()
    assert records[1].outputs[0] == pytest.approx(80_000, abs=1000)
