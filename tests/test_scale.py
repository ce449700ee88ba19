"""Random examples depend on the test that draws them, and on the seed at the full scale."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import FULL, combinations

SHOW = """
from hypothesis import settings
from scale import load_hypothesis_profile
load_hypothesis_profile()
print(settings.default.derandomize)
"""


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (7, 3, 3), (2, 2, 2), (4, 2, 3, 5)])
def test_combinations_have_each_value_of_each_parameter(sizes):
    parameters = [range(size) for size in sizes]
    found = combinations(*parameters)
    assert len(found) == len(set(found)) == (math.prod(sizes) if FULL else max(sizes))
    for number, values in enumerate(parameters):
        assert {each[number] for each in found} == set(values)


def drawn() -> list[object]:
    found: list[object] = []

    @settings(max_examples=300)
    @given(st.lists(st.integers(), max_size=5), st.text(max_size=5), st.binary(max_size=5))
    def draw(numbers: list[int], text: str, data: bytes) -> None:
        found.append((numbers, text, data))

    draw()
    return found


@pytest.mark.slow
@pytest.mark.skipif(FULL, reason="the full scale draws new examples in each run")
def test_hypothesis_examples_do_not_depend_on_imported_modules(tmp_path, monkeypatch):
    before = drawn()
    lines = [f"{n * 7919}, 't{n}', b'b{n}'" for n in range(100, 200)]
    (tmp_path / "hp_constants_of_scale.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("hp_constants_of_scale")
    try:
        assert drawn() == before
    finally:
        del sys.modules["hp_constants_of_scale"]


@pytest.mark.process
def test_the_full_scale_is_not_derandomized_in_ci():
    """Hypothesis has a profile for CI, which draws the same examples whatever the seed says."""
    environment = {**os.environ, "CI": "true", "HYPERPLANE_TEST_SCALE": "full"}
    found = subprocess.run(
        [sys.executable, "-c", SHOW],
        env=environment,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"
