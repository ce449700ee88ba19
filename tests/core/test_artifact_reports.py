"""Reports of what a step in a container has saved, which are lines of its log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hyperplane
from hyperplane.core.artifact_reports import (
    LINE_MARKER,
    SEND_VARIABLE,
    report_artifact,
    split_reports,
)

PROGRAM = """
from hyperplane.core.artifact_reports import report_artifact
report_artifact("dataframe", url="s3://bucket/a.parquet", rows=3)
report_artifact("dataframe", url="/tmp/a.parquet", local=True)
report_artifact("dataframe", url="s3://bucket/" + 5000 * "a")
print("data")
"""


def run(text: str, folder: Path) -> bytes:
    """Return the log of a container whose program is a line of shell."""
    script = folder / "save.py"
    script.write_text(PROGRAM)
    source = str(Path(hyperplane.__file__).parents[1])
    environment = {**os.environ, SEND_VARIABLE: "1", "PYTHONPATH": source}
    words = ["bash", "-c", text.replace("SAVE", f"{sys.executable} {script}")]
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("exec SAVE", b"data\n"),
        ("SAVE; echo end", b"data\nend\n"),
        ("SAVE | cat >out; cat out", b"data\n"),
    ],
)
def test_a_report_is_a_line_of_the_log_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, printed: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    kept, [report] = split_reports(run(text, tmp_path).split(b"\n"))
    assert b"\n".join(kept) == printed
    document = json.loads(report)
    assert (document["kind"], document["url"], document["rows"]) == (
        "dataframe", "s3://bucket/a.parquet", 3
    )  # fmt: skip
    if "|" in text:  # what a program prints for another one is as ever
        assert (tmp_path / "out").read_bytes() == b"data\n"


def test_nothing_is_printed_outside_of_a_container(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(SEND_VARIABLE, raising=False)
    report_artifact("text", url="s3://bucket/a.txt")
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv(SEND_VARIABLE, "1")
    report_artifact("text", url="s3://bucket/a.txt")
    assert capfd.readouterr().out.startswith(f"\n{LINE_MARKER}{{")


def test_only_the_empty_line_of_a_report_is_removed() -> None:
    lines = [b"a", b"", b"", LINE_MARKER.encode() + b"{}\r", b"", b"b", LINE_MARKER.encode() + b"x"]
    assert split_reports(lines) == ([b"a", b"", b"", b"b"], [b"{}", b"x"])
