"""Reading the end of a step's log."""

from __future__ import annotations

import os

from hyperplane.jobs.execution import step_log
from hyperplane.jobs.execution.step_log import read_last_lines


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
