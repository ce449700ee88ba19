"""Every machine of the corpus has the result in its case file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asl_corpus
import pytest

from hyperplane.asl.checking import check_machine
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import Machine, read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError

CORPUS = [(folder, name) for folder in ("valid", "invalid") for name in asl_corpus.names(folder)]


def test_the_corpus_is_complete():
    assert len(asl_corpus.names("valid")) >= 60
    assert len(asl_corpus.names("invalid")) >= 40


@pytest.mark.parametrize(("folder", "name"), CORPUS, ids=[f"{f}-{name}" for f, name in CORPUS])
def test_a_machine_has_the_result_in_its_case_file(folder, name, tmp_path):
    if folder == "invalid":
        refuse_with_all_faults(name)
        return
    machine = read_machine(asl_corpus.machine_of("valid", name))
    assert machine.doubts == ()
    assert check_machine(machine.document) == []
    asl_corpus.write_objects(tmp_path)
    cases = asl_corpus.case_of("valid", name)["cases"]
    assert cases
    for case in cases:
        run_case(machine, case, tmp_path)


def refuse_with_all_faults(name: str) -> None:
    path = asl_corpus.machine_of("invalid", name)
    expected = asl_corpus.case_of("invalid", name)["faults"]
    with pytest.raises(RequestError) as refused:
        read_machine(path)
    faults = [
        {
            "line": int(fault.source.removeprefix(f"{path}:")),
            **{name: getattr(fault, name) for name in ("where", "asked", "allowed")},
            **({"advice": fault.advice} if fault.advice else {}),
        }
        for fault in refused.value.faults
    ]
    assert faults == expected


def run_case(machine: Machine, case: dict[str, Any], root: Path) -> None:
    clock = asl_corpus.Clock()

    def run() -> Any:
        tasks = asl_corpus.tasks(root)
        return run_machine(machine, case["input"], tasks, sleep=clock.sleep, now=clock.now)

    if "error" in case:
        with pytest.raises(MachineFailed) as failed:
            run()
        assert (failed.value.error, failed.value.state) == (case["error"], case["state"]), case
        assert case["cause"] in failed.value.cause, case
    else:
        assert repr(run()) == repr(case["output"]), case  # 1 is not True, and 1.0 is not 1
    if "waits" in case:
        assert clock.waits == case["waits"], case
