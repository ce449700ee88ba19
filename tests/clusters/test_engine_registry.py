"""Every row of the registry of engines is the engine of that name."""

from __future__ import annotations

import pytest

from hyperplane import RequestError
from hyperplane.clusters import registry


@pytest.mark.parametrize("name", registry.ENGINES.built_in)
def test_every_row_loads(name: str) -> None:
    assert registry.load(name).name == name


def test_the_unknown_name_of_an_engine_has_a_suggestion() -> None:
    with pytest.raises(RequestError, match="did you mean local") as failed:
        registry.load("locl")
    assert "auto" in failed.value.faults[0].allowed
