"""Every machine of the corpus does what the file beside it says."""

from __future__ import annotations

from typing import Any

import asl_corpus
import pytest

from hyperplane.asl.checking import check_machine
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError

CASES = [
    (name, number)
    for name in asl_corpus.names("valid")
    for number in range(len(asl_corpus.case_of("valid", name)["cases"]))
]


def test_the_corpus_is_there_and_every_machine_has_cases():
    valid, invalid = asl_corpus.names("valid"), asl_corpus.names("invalid")
    assert len(valid) >= 60
    assert len(invalid) >= 40
    assert {name for name, _ in CASES} == set(valid)


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_a_valid_machine_does_what_is_said(name, number, tmp_path):
    machine = read_machine(asl_corpus.machine_of("valid", name))
    assert machine.doubts == ()
    case = asl_corpus.case_of("valid", name)["cases"][number]
    asl_corpus.write_objects(tmp_path)
    clock = asl_corpus.Clock()

    def run() -> Any:
        tasks = asl_corpus.tasks(tmp_path)
        return run_machine(machine, case["input"], tasks, sleep=clock.sleep, now=clock.now)

    if "error" in case:
        with pytest.raises(MachineFailed) as failed:
            run()
        assert (failed.value.error, failed.value.state) == (case["error"], case["state"])
        assert case["cause"] in failed.value.cause
    else:
        assert repr(run()) == repr(case["output"])  # 1 is not True, and 1.0 is not 1
    if "waits" in case:
        assert clock.waits == case["waits"]


@pytest.mark.parametrize("name", asl_corpus.names("invalid"))
def test_an_invalid_machine_is_refused_with_all_its_faults(name):
    path = asl_corpus.machine_of("invalid", name)
    wanted = asl_corpus.case_of("invalid", name)["faults"]
    with pytest.raises(RequestError) as refused:
        read_machine(path)
    found = [str(fault).replace(f"{path}:", "line ") for fault in refused.value.faults]
    assert found == wanted


@pytest.mark.parametrize("name", asl_corpus.names("valid"))
def test_a_valid_machine_has_no_faults_as_a_mapping(name):
    path = asl_corpus.machine_of("valid", name)
    assert check_machine(read_machine(path).document) == []
