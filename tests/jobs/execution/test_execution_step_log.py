"""Reading the end of a step's log."""

from __future__ import annotations

import os

from hyperplane.jobs.execution import step_log
from hyperplane.jobs.execution.failure_kinds import TRANSIENT, classify_failure
from hyperplane.jobs.execution.step_log import begin_log, read_last_lines, read_tail


def test_only_the_end_of_a_log_is_read(tmp_path, monkeypatch):
    log = tmp_path / "a.log"
    monkeypatch.setattr(step_log, "_BLOCK_BYTES", 16)
    texts = ["", "\n", "one", "one\n", "one\ntwo", "é" * 40 + "\n\n" + "ü" * 9 + "\r\nlast\n"]
    for text in [*texts, "x" * 500, "\n" * 99, "".join(f"line {i}\n" for i in range(200))]:
        log.write_text(text, newline="")
        for lines in (0, 1, 2, 3, 50, 1_000):
            wanted = text.splitlines()
            assert read_last_lines(log, lines) == "\n".join(wanted[max(0, len(wanted) - lines) :])
    with log.open("wb") as opened:
        opened.truncate(20 * 10**9)  # a hole, too large to be read as a whole
        opened.seek(0, os.SEEK_END)
        opened.write(b"\nlast but one\nlast")
    assert read_last_lines(log, 2) == "last but one\nlast"


def test_what_is_written_before_the_program_starts_decides_nothing_about_its_failure(tmp_path):
    log = tmp_path / "steps" / "attempt-1.log"
    preface = "forecast: MemoryError\n" * 600  # more than is read of a log
    begin_log(log, preface)
    assert log.read_text() == preface
    with log.open("a") as opened:
        opened.write("\x1b[31mconnection reset\x1b[0m\n")
    assert read_tail(log, after_preface=True) == "connection reset\n"
    assert classify_failure(1, read_tail(log, after_preface=True)) == TRANSIENT
    assert "MemoryError" in read_tail(log)
    log.write_text("that of another machine, without the first lines\n")
    assert read_tail(log, after_preface=True).startswith("that of another machine")
    plain = tmp_path / "plain.log"
    begin_log(plain, "")
    assert not plain.with_suffix(".preface").exists()
    assert read_tail(plain, after_preface=True) == ""
