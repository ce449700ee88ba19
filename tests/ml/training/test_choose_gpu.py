"""Choice of the GPUs of ranks, without GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from hyperplane.ml.training.rank_process_group import choose_gpu

NAMES = "ABCDE"
LISTS = st.lists(
    st.permutations(NAMES).flatmap(lambda names: st.integers(0, 5).map(lambda n: names[:n])),
    min_size=1,
    max_size=6,
)


def choose(gpus, can_share=False):
    """Return the GPU of each rank, and whether all ranks have separate ones."""
    found = [choose_gpu(gpus, rank, can_share) for rank in range(len(gpus))]
    names = [
        None if number is None else each[number]
        for each, (number, _) in zip(gpus, found, strict=True)
    ]
    assert len({is_own for _, is_own in found}) == 1
    return names, found[0][1]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (["AB", "A"], "BA"),
        (["AB", "BC", "A"], "BCA"),
        (["ABC", "AB", "A"], "CBA"),
        (["ABC", "ABC", "ABC"], "ABC"),
        (["ABC", "BCA", "CAB"], "ABC"),  # workers of dask-cuda
        (["CAB", "CAB", "A"], "CBA"),
    ],
)
def test_a_rank_with_one_gpu_gets_it_if_the_others_have_more(gpus, expected):
    assert choose(gpus) == (list(expected), True)


def test_ranks_without_separate_gpus_share_them_or_use_the_cpu():
    assert choose(["AB", "A", "A"]) == ([None] * 3, False)
    names, is_own = choose(["AB", "A", "A"], can_share=True)
    assert not is_own
    assert names[:2] == ["B", "A"]
    assert choose(["AB", ""], can_share=True) == ([None, None], False)


@settings(max_examples=scaled(200, 2000))
@given(LISTS)
def test_ranks_have_separate_gpus_if_any_assignment_exists(gpus):
    names, is_own = choose(gpus)
    edges = np.array([[name in each for name in NAMES] for each in gpus], dtype=int)
    matched = maximum_bipartite_matching(csr_array(edges), perm_type="column")
    assert is_own == bool((matched >= 0).all())
    if is_own:
        assert len(set(names)) == len(names)
    else:
        assert set(names) == {None}
