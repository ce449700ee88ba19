"""Memory thresholds in Dask's keys apply, or a note names the value that overrides them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import distributed  # noqa: F401 - imported within dask.config.set, its defaults go with that
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hyperplane
from hyperplane import config
from hyperplane.clusters.registry import ENGINES
from hyperplane.errors import ConfigError
from hyperplane.spec.memory import MemoryPolicy

OURS, OF_DASK = "hyperplane.memory", "distributed.worker.memory"
NAMES = ("target", "spill", "pause", "terminate")
SMALL: dict[str, Any] = {"num_workers": 1, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}

SCRIPT = """
import json, sys
if "distributed" in sys.argv:
    import distributed
import hyperplane
plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
print(json.dumps([plan.options.memory.to_dict(), plan.notes, plan.alerts]))
"""


def _planned(
    folder: Path, files: dict[str, str], *words: str, **variables: str
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Policy, notes and alerts of a plan in a new process with a separate configuration."""
    for name, text in files.items():
        (folder / name).write_text(text)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DASK_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        env={**environ, "DASK_CONFIG": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: tuple[dict[str, Any], list[str], list[str]] = json.loads(done.stdout)
    return found


DASK_YAML = "distributed: {worker: {memory: {target: 0.55, spill: 0.65, terminate: false}}}"


@pytest.mark.process
@pytest.mark.parametrize("words", [(), ("distributed",)])
def test_thresholds_in_a_file_of_dask_apply(tmp_path: Path, words: tuple[str, ...]) -> None:
    policy, notes, alerts = _planned(tmp_path, {"distributed.yaml": DASK_YAML}, *words)
    assert policy == {"target": 0.55, "spill": 0.65, "pause": 0.8, "terminate": False}
    assert notes[-1] == (
        "memory policy from Dask's configuration: distributed.worker.memory.target = 0.55, "
        "distributed.worker.memory.spill = 0.65, distributed.worker.memory.terminate = False"
    )
    assert alerts == []


@pytest.mark.process
def test_hyperplane_thresholds_take_precedence_and_are_noted(tmp_path: Path) -> None:
    # Set by the user, although equal to the default.
    ours = "hyperplane: {memory: {target: 0.60, pause: 0.9}}"
    policy, notes, alerts = _planned(
        tmp_path,
        {"distributed.yaml": DASK_YAML, "site.yaml": ours},
        DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE="0.85",
    )
    assert policy == {"target": 0.6, "spill": 0.65, "pause": 0.9, "terminate": False}
    [line] = alerts
    assert line in notes
    assert line == (
        "distributed.worker.memory.target = 0.55 is not used: hyperplane.memory.target is 0.6; "
        "distributed.worker.memory.pause = 0.85 is not used: hyperplane.memory.pause is 0.9"
    )


@pytest.mark.process
def test_defaults_of_dask_do_not_override_hyperplane_thresholds(tmp_path: Path) -> None:
    policy, notes, alerts = _planned(
        tmp_path, {"site.yaml": "hyperplane: {memory: {target: 0.5}}"}, "distributed"
    )
    assert policy["target"] == 0.5
    assert not any("memory" in note for note in [*notes, *alerts])


def test_an_argument_takes_precedence_and_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with dask.config.set({f"{OF_DASK}.pause": 0.85, f"{OURS}.target": 0.5}):
        plan = hyperplane.plan_cluster(**SMALL, memory=MemoryPolicy(pause=0.9))
        partly = hyperplane.plan_cluster(**SMALL, memory={"pause": 0.9})
        same = hyperplane.plan_cluster(**SMALL, memory=MemoryPolicy(pause=0.85))
    line = f"{OF_DASK}.pause = 0.85 is not used: the argument memory is 0.9"
    assert plan.options.memory == MemoryPolicy(pause=0.9)
    assert partly.options.memory == MemoryPolicy(target=0.5, pause=0.9)
    assert plan.alerts == partly.alerts == (line,)
    assert same.alerts == ()
    hyperplane.clusters.start_lines.print_start_lines(plan)
    assert capsys.readouterr().err == f"👉 Hyperplane: {line}\n"


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (7, "a fraction in (0, 1], or False for never"),
        (None, "a fraction in (0, 1], or False for never"),
        (0.3, f"at least {OURS}.target (0.6)"),
    ],
)
def test_the_fault_of_an_invalid_threshold_names_the_key_of_dask(value: Any, allowed: str) -> None:
    with dask.config.set({f"{OF_DASK}.spill": value}):
        with pytest.raises(ConfigError) as caught:
            hyperplane.plan_cluster(**SMALL)
        [fault] = caught.value.faults
        assert (fault.where, fault.source) == (f"{OF_DASK}.spill", "dask.config.set")
        assert fault.allowed == allowed
        assert fault in config.faults(ENGINES)


@pytest.mark.process
def test_the_fault_of_an_invalid_threshold_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="variable DASK_DISTRIBUTED__WORKER__MEMORY__SPILL"):
        _planned(tmp_path, {}, DASK_DISTRIBUTED__WORKER__MEMORY__SPILL="7")


RISING = st.lists(st.floats(0.05, 1), min_size=4, max_size=4).map(sorted)


@given(RISING, RISING, st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_a_policy_of_one_key_each(dask_values, our_values, in_dask, in_ours) -> None:
    of_dask = {n: v for n, v in zip(NAMES, dask_values, strict=True) if n in in_dask}
    ours = {n: v for n, v in zip(NAMES, our_values, strict=True) if n in in_ours}
    expected = {**MemoryPolicy().to_dict(), **of_dask, **ours}
    # A value equal to the default cannot be distinguished from it.
    shipped = MemoryPolicy().to_dict()
    assume(all(value != shipped[name] for name, value in ours.items()))
    settings = {f"{OF_DASK}.{name}": value for name, value in of_dask.items()}
    settings.update({f"{OURS}.{name}": value for name, value in ours.items()})
    with dask.config.set(settings):
        try:
            found = config.memory_policy().to_dict()
        except ConfigError:
            numbers = [value for value in expected.values() if value is not False]
            assert numbers != sorted(numbers)
        else:
            assert found == expected


@pytest.mark.cluster
def test_workers_have_the_thresholds_of_dask_keys() -> None:
    def thresholds(dask_worker: Any) -> list[Any]:
        manager = dask_worker.memory_manager
        return [manager.memory_target_fraction, manager.memory_pause_fraction]

    def terminate(dask_worker: Any) -> Any:
        return dask_worker.memory_manager.memory_terminate_fraction

    settings = {f"{OF_DASK}.target": 0.55, f"{OF_DASK}.terminate": 0.9}
    with dask.config.set(settings):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL))
    with cluster, client:
        cluster.scale(2)
        client.wait_for_workers(2)
        assert list(client.run(thresholds).values()) == [[0.55, 0.8]] * 2
        assert list(client.run(terminate, nanny=True).values()) == [0.9] * 2
