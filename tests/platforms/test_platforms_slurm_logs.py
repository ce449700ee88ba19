"""Logs of jobs."""

from __future__ import annotations

from pathlib import Path

from hyperplane.platforms.slurm.logs import escape_path, job_log, read_log_tail


def test_placeholders_in_paths_are_text() -> None:
    assert escape_path("/a %j\\b/100%") == "/a %%j\\\\b/100%%"


def test_the_last_lines_of_a_log_are_read(tmp_path: Path) -> None:
    path = job_log(tmp_path, "flights").replace("%j", "42")
    lines = [f"größer {n}" for n in range(50_000)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path(job_log(tmp_path, "flights").replace("%j", "142")).write_text("of another job")
    assert read_log_tail(tmp_path, "42", 3).splitlines() == lines[-3:]
    Path(path).write_bytes(b"short \xff")
    assert read_log_tail(tmp_path, "42", 3) == "short \ufffd"


def test_without_a_log_there_are_no_lines(tmp_path: Path) -> None:
    assert read_log_tail(tmp_path, "42", 3) == ""
    assert read_log_tail(tmp_path / "gone", "42", 3) == ""
    (tmp_path / "flights-42.log").mkdir()
    assert read_log_tail(tmp_path, "42", 3) == ""
