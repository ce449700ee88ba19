"""The results of dask-ml are those that its page lists, and each correction is needed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client
from ml.dask_ml_checks import CHECKS, FAULTS, find_failures
from ml.dask_ml_checks.check import Data
from ml.dask_ml_results import (
    CORRECTED,
    PACKAGES,
    STACKS,
    WORKS,
    describe_results,
    installed_stack,
    read_results,
    write_results,
)
from scale import FULL, scaled

import hyperplane.ml  # noqa: F401 - applies the corrections
from hyperplane.ml.dask_ml_patches import PATCHES

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

#: Checks, with the corrections and without; at the small scale one of each correction, and what
#: cannot work.
RUN_CHECKS = scaled(
    list(
        {
            check.corrected or name: name
            for name, check in CHECKS.items()
            if check.corrected or check.instead
        }.values()
    ),
    list(CHECKS),
)
#: Prints the errors of checks in a process without the corrections.
UNCORRECTED = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from distributed import Client
from ml.dask_ml_checks import CHECKS, find_failures
with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"):
    failures = find_failures(CHECKS, json.loads(sys.argv[2]))
assert "hyperplane.ml.dask_ml_patches" not in sys.modules
print(json.dumps(failures))
"""


@pytest.fixture(scope="module")
def client():
    with Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
    ) as client:
        yield client


@pytest.fixture(scope="module")
def corrected(client):
    """Errors of the checks that fail with the corrections."""
    return find_failures(CHECKS, RUN_CHECKS)


@pytest.fixture(scope="module")
def uncorrected():
    """Errors of the checks that fail without the corrections."""
    tests, names = str(Path(__file__).parents[1]), json.dumps(RUN_CHECKS)
    command = [sys.executable, "-c", UNCORRECTED, tests, names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.cluster
@pytest.mark.parametrize("name", [name for name in RUN_CHECKS if not CHECKS[name].instead])
def test_results_are_those_of_scikit_learn(corrected, name):
    assert corrected.get(name) is None


@pytest.mark.cluster
@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.instead])
def test_what_does_not_work_has_the_error_that_is_listed(corrected, name):
    # If this fails, dask-ml can do it now: remove the alternative.
    assert re.search(CHECKS[name].error, corrected.get(name, "no error"))


@pytest.mark.cluster
@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.instead])
def test_what_to_use_instead_works(client, name):
    CHECKS[name].alternative(Data())


@pytest.mark.skipif(not FULL, reason="runs dask-ml without the corrections: at full scale")
@pytest.mark.process
@pytest.mark.cluster
def test_the_recorded_results_are_those_of_this_stack(corrected, uncorrected):
    results = describe_results(uncorrected, corrected)
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        write_results(results)  # at full scale, so that all checks have run uncorrected
    recorded = read_results()[installed_stack()[0]]["results"]
    assert {name: recorded[name] for name in RUN_CHECKS} == {
        name: results[name] for name in RUN_CHECKS
    }


@pytest.mark.skipif(not FULL, reason="runs dask-ml without the corrections: at full scale")
@pytest.mark.process
@pytest.mark.cluster
def test_a_correction_breaks_nothing(corrected, uncorrected):
    assert set(corrected) <= set(uncorrected)


def test_each_correction_is_needed_on_a_stack():
    # If a check is missing here, dask-ml has corrected its fault: remove the correction.
    recorded = [read_results()[stack]["results"] for stack in STACKS]
    needed = {name for name in CHECKS if CORRECTED in [each[name] for each in recorded]}
    assert needed == {name for name, check in CHECKS.items() if check.corrected}
    assert {check.corrected for check in CHECKS.values()} - {""} == set(FAULTS) == set(PATCHES)


def test_most_results_are_right_on_both_stacks():
    for stack in STACKS:
        results = read_results()[stack]["results"]
        assert list(results) == list(CHECKS)
        right = [each for each in results.values() if each in (WORKS, CORRECTED)]
        assert len(right) >= 65
        assert len(results) - len(right) == sum(bool(each.instead) for each in CHECKS.values())


def test_the_recorded_versions_are_those_of_the_stacks():
    recorded = read_results()
    stack, versions = installed_stack()
    assert all(list(recorded[each]["packages"]) == list(PACKAGES) for each in STACKS)
    assert recorded["oldest"]["packages"] != recorded["newest"]["packages"]
    if stack == "oldest":
        assert recorded["oldest"]["packages"]["dask"] == versions["dask"]
        assert recorded["oldest"]["packages"]["pandas"] == versions["pandas"]


@pytest.mark.process
def test_the_corrections_load_nothing():
    program = (
        "import sys, hyperplane.ml\n"
        "loaded = {'dask_ml', 'sklearn', 'pandas', 'distributed'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not FULL, reason="imports most of dask-ml: at full scale")
@pytest.mark.process
def test_modules_that_were_imported_before_are_corrected():
    program = (
        "import dask_ml.compose, dask_ml.linear_model, dask_ml.metrics, hyperplane.ml\n"
        "functions = [\n"
        "    dask_ml.compose.ColumnTransformer._hstack,\n"
        "    dask_ml.metrics.r2_score,\n"
        "    dask_ml.metrics.log_loss,\n"
        "    dask_ml.metrics.scorer.SCORERS['r2'][0],\n"
        "    dask_ml.linear_model.glm.r2_score,\n"
        "]\n"
        "for each in functions:\n"
        "    assert 'dask_ml_patches' in each.__code__.co_filename, each\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
