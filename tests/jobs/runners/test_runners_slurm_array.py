"""Attempts that form one array, and the file of its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.jobs import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.slurm import array_task
from hyperplane.jobs.runners.slurm.array import (
    array_command,
    array_key,
    shared_variables,
    task_index,
    write_tasks,
)
from hyperplane.jobs.runners.slurm.job_id import SlurmJobId, prepare_id_file

STEP = Step(name="a", kind="command", argv=("true",), chunks=9, secrets=("the/token",))
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=9)
NAME = st.text("ABC_", min_size=1, max_size=3)


def command(chunk=0, place="/p", argv=("true",), attempt=1, folder="/work", **environment):
    prefix = Path(place, "job", "steps", "000-a", f"chunk-{chunk:05d}", f"attempt-{attempt}")
    return AttemptCommand(argv, environment, folder, prefix)


@given(
    st.lists(
        st.tuples(st.dictionaries(NAME, TEXT), st.lists(TEXT, min_size=1)), min_size=1, max_size=5
    )
)
def test_each_task_reads_its_own_variables_and_command(drawn):
    commands = [
        command(2 * n, argv=argv, **environment) for n, (environment, argv) in enumerate(drawn)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks")
        common = shared_variables(commands)
        write_tasks(path, commands, common)
        assert path.stat().st_mode & 0o777 == 0o600
        for attempt in commands:
            prefix, variables, argv = array_task.read_task(str(path), task_index(attempt))
            assert prefix == os.fsencode(attempt.attempt_prefix)
            assert argv == [os.fsencode(word) for word in attempt.argv]
            own = dict(os.fsdecode(variable).split("=", 1) for variable in variables)
            assert {**common, **own} == attempt.environment
            assert not set(own.items()) & set(common.items())
        with pytest.raises(LookupError, match="no task 1 in"):
            array_task.read_task(str(path), 1)


@pytest.mark.process
def test_a_task_becomes_the_wrapper_with_its_command_and_variables(tmp_path):
    wrapper = tmp_path / "around.py"
    wrapper.write_text("import os, sys; print(sys.argv[1:], sys.flags.isolated, dict(os.environ))")
    commands = [command(n, argv=("run", "", f"{n} ü\n"), ITEM=f"i={n}", SAME="1") for n in (4, 7)]
    write_tasks(tmp_path / "tasks", commands, {"SAME": "1"})
    environment = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_JOB_ID": "1", "SLURM_JOB_ID": "8"}
    completed = subprocess.run(
        [sys.executable, "-I", "-S", array_task.__file__, str(tmp_path / "tasks"), str(wrapper)],
        env={**environment, "SAME": "1", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = [str(commands[1].attempt_prefix), "run", "", "7 ü\n"]
    seen = {"SLURM_JOB_ID": "8", "SAME": "1", "LC_ALL": "C.UTF-8", "ITEM": "i=7"}
    assert completed.stdout == f"{words} 1 {seen}\n"


def test_attempts_that_differ_only_in_the_chunk_form_one_array():
    first = array_key(command(3, CHUNK_ID="3"), STEP, 1.0)
    assert first is not None
    assert array_key(command(999, CHUNK_ID="999"), STEP, 1.0) == first
    others = [
        array_key(command(1003), STEP, 1.0),
        array_key(command(123_003), STEP, 1.0),
        array_key(command(4, attempt=2), STEP, 1.0),
        array_key(command(4, folder="/elsewhere"), STEP, 1.0),
        array_key(command(4), STEP, 2.0),
        array_key(command(4, THE_TOKEN="of another day"), STEP, 1.0),
        array_key(command(4, HYPERPLANE_CUSTOM_SECRET_KEY_THE_TOKEN="another"), STEP, 1.0),
    ]
    assert len({first, *others}) == 8
    assert None not in others
    assert array_key(command(4, place="/a\\b"), STEP, 1.0) is None
    alone = AttemptCommand(("true",), {}, "/work", Path("/p/job/steps/000-a/attempt-1"))
    assert array_key(alone, STEP, 1.0) is None


def test_the_task_file_has_only_differences(tmp_path):
    commands = [command(n, THE_TOKEN="s3cret", CHUNK_ID=str(n), SLURM_X="1") for n in range(3)]
    assert shared_variables(commands) == {"THE_TOKEN": "s3cret"}
    write_tasks(tmp_path / "tasks", commands, shared_variables(commands))
    written = (tmp_path / "tasks").read_bytes()
    assert b"CHUNK_ID=2" in written
    assert b"TOKEN" not in written
    assert b"SLURM_X" not in written


def test_the_id_of_a_task_is_made_from_that_of_its_array(tmp_path):
    single, first, second = (command(n, place=tmp_path) for n in range(3))
    for attempt in (single, first, second):
        attempt.attempt_prefix.parent.mkdir(parents=True)
    whole = array_command([first, second])
    assert not SlurmJobId(first).may_appear()
    for attempt in (single, whole):
        prepare_id_file(attempt)
    for attempt in (first, second):
        prepare_id_file(attempt, whole, task_index(attempt))
    task_id = SlurmJobId(second)
    assert (task_id.read(), task_id.may_appear()) == ("", True)
    assert task_id.name() == "hyperplane-job-000-a-array-chunk-00001-attempt-1"
    SlurmJobId(first).write("42")
    assert (task_id.read(), SlurmJobId(first).read(), task_id.may_appear()) == (
        "42_2",
        "42_1",
        False,
    )
    assert SlurmJobId(single).read() == ""
    SlurmJobId(single).write("43")
    assert SlurmJobId(single).read() == "43"
    assert SlurmJobId(single).name() == "hyperplane-job-000-a-chunk-00000-attempt-1"
