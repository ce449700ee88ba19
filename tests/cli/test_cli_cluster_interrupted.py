"""``hyperplane cluster start`` that a signal ends."""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path

import pytest
from foreground_clusters import START, ended_well, wait_until
from scale import FULL, scaled
from terminal import Begin

pytestmark = pytest.mark.cluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "whole_group"),
    scaled(
        [(signal.SIGTERM, False)],  # SIGINT is where people see how to end it
        list(itertools.product([signal.SIGINT, signal.SIGTERM], [True, False])),
    ),
)
def test_a_signal_closes_the_cluster(
    number: signal.Signals, whole_group: bool, begin: Begin, place: Path
) -> None:
    held = begin(*START, "--json")
    held.read_until("}")
    held.signal(number, whole_group=whole_group)
    ended_well(held, place)


@pytest.mark.skipif(not FULL, reason="tests of clusters interrupt starts, too: at full scale")
@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.6])
def test_ctrl_c_during_the_start_closes_the_cluster(
    seconds: float, begin: Begin, place: Path
) -> None:
    held = begin(*START, "--json")
    wait_until(lambda: list(place.rglob("*.json")), 120)
    time.sleep(seconds)
    held.signal(signal.SIGINT, whole_group=True)
    ended_well(held, place)
