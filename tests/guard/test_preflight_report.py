"""The report of the checks before a start, and the run of checks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from html_pages import read_page

from hyperplane.errors import PreflightError
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.report import PreflightFinding, PreflightReport
from hyperplane.guard.preflight.run_checks import Check, run_checks

FINDINGS = (
    PreflightFinding("disk", "ok", "large"),
    PreflightFinding("packages", "unchecked", "<unknown>"),
    PreflightFinding("versions", "fault", "pandas 3.1 here, 3.0 there", "install it"),
    PreflightFinding("image", "warning", "no tag"),
)


def test_a_report_prints_faults_first() -> None:
    report = PreflightReport("flights", "ssh", FINDINGS, 1.25)
    title, *lines = str(report).splitlines()
    assert "flights (engine ssh): 1 fault, 1 warning, 1 not checked, in 1.2 s" in title
    assert [line.split()[0] for line in lines] == ["fault", "warning", "unchecked", "ok"]
    assert "versions: pandas 3.1 here, 3.0 there; install it" in lines[0]
    page = read_page(report._repr_html_())
    assert "<unknown>" in page.text
    assert all(text in page.cells for row in report.rows() for text in row)
    assert json.loads(json.dumps(report.to_dict()))["good"] is False


def test_one_fault_and_several_are_raised_with_their_advice() -> None:
    report = PreflightReport("flights", "ssh", FINDINGS, 1.0)
    with pytest.raises(PreflightError, match=r"nothing was started: pandas 3\.1 here"):
        report.raise_for_faults()
    both = (*FINDINGS, PreflightFinding("hosts", "fault", "no route"))
    with pytest.raises(PreflightError) as caught:
        PreflightReport("flights", "ssh", both, 1.0).raise_for_faults()
    assert [fault.where for fault in caught.value.faults] == ["versions", "hosts"]
    assert "2 faults were found:\n  versions: " in str(caught.value)
    PreflightReport("flights", "ssh", FINDINGS[:2], 1.0).raise_for_faults()


def test_a_silent_check_and_one_that_fails_are_unchecked() -> None:
    release = threading.Event()

    def wait(deadline: CheckDeadline) -> Iterator[PreflightFinding]:
        release.wait(60)
        yield FINDINGS[0]

    def fail(deadline: CheckDeadline) -> list[PreflightFinding]:
        raise KeyError("a key")

    checks = [Check("silent", wait), Check("broken", fail), Check("good", lambda _: FINDINGS[:1])]
    try:
        silent, broken, good = run_checks(checks, limit=1.0)
    finally:
        release.set()
    assert (silent.state, silent.subject) == ("unchecked", "silent")
    assert (broken.state, broken.text) == ("unchecked", "KeyError: 'a key'")
    assert good == FINDINGS[0]
