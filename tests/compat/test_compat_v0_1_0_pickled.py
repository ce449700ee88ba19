"""This version loads pickles in job folders of version 0.1.0, or refuses them with advice."""

from __future__ import annotations

import base64
import importlib
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from release import DATA

import hyperplane
from hyperplane.errors import JobError
from hyperplane.jobs import Pipeline, Step, calls, job_control
from hyperplane.jobs.pickled_calls import (
    RENAMED,
    RENAMED_MODULES,
    OtherVersionError,
    unpickle,
)

PICKLED = DATA / "v0.1.0" / "place" / "pickled"


def pickled(name: str) -> bytes:
    return base64.decodebytes((PICKLED / f"{name}.pickle.b64").read_bytes())


def test_advice_of_a_size_is_loaded():
    advice = unpickle(pickled("advice"))
    now = hyperplane.size_cluster("100GB", operation="groupby")
    assert type(advice) is type(now)
    assert advice.as_arguments() == now.as_arguments()
    assert str(advice).splitlines()[0] == str(now).splitlines()[0]


def test_a_report_of_a_cleanup_is_loaded():
    report = unpickle(pickled("cleanup"))
    assert type(report) is hyperplane.storage.CleanupReport
    assert report.url.endswith("saved.parquet")


def test_an_error_is_loaded():
    error = hyperplane.RequestError([hyperplane.Fault("nprocs", "0", "at least 1")])
    now, then = (b"hyperplane.core.errors.base\n_rebuild", b"hyperplane.errors.requests\n_rebuild")
    data = pickle.dumps(error, protocol=0)
    assert now in data
    loaded = unpickle(data.replace(now, then))
    assert (type(loaded), str(loaded), loaded.faults) == (type(error), str(error), error.faults)


def test_a_function_that_uses_renamed_functions_runs():
    function, arguments, named = unpickle(pickled("call"))
    assert function(*arguments, **named) == 42


@pytest.mark.process
def test_a_pending_call_of_a_function_runs(tmp_path):
    (tmp_path / "call.pickle").write_bytes(pickled("call"))
    environment = {**os.environ, "HYPERPLANE_JOB_FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, "-m", calls.PROGRAM], env=environment, check=True)
    assert unpickle((tmp_path / "result.pickle").read_bytes()) == 42


def test_a_lazy_collection_is_refused_with_advice(tmp_path):
    with pytest.raises(OtherVersionError, match=r"another version .* submit the job again"):
        unpickle(pickled("collection"))
    job = job_control.new_job(
        Pipeline.from_steps("x", [Step(name="a", kind="command", argv=("x",))])
    )
    job = replace(job, folder=str(tmp_path))
    Path(job.folder_path).mkdir(exist_ok=True)
    (job.folder_path / "result.pickle").write_bytes(pickled("collection"))
    with pytest.raises(JobError, match=r"the result cannot be read: .* submit the job again"):
        calls.load_result(job)


def test_errors_of_other_packages_stay_as_they_are():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        unpickle(b"cno_such_module\nname\n.")


@pytest.mark.parametrize(("module", "name"), RENAMED.values())
def test_renamed_objects_exist(module, name):
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("former", "module"), RENAMED_MODULES.items())
def test_a_renamed_module_is_imported_by_its_present_name(former, module):
    # A pickled function of ``@job`` contains the modules that it uses by their names.
    data = f"ccloudpickle.cloudpickle\nsubimport\n(V{former}\ntR.".encode()
    assert unpickle(data) is importlib.import_module(module)
