"""``hyperplane job logs``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scale import scaled
from terminal import Begin, Run

pytestmark = pytest.mark.process

PIPELINE = """
pipeline:
  name: logs
  tasks:
  - {name: first, type: bash script, bash_script_path: count.sh}
  - {name: many, type: bash script, bash_script_path: chunk.sh, chunks: 2, retries: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count.sh").write_text("for i in 1 2 3 4 5; do echo line $i; done\n")
    (tmp_path / "chunk.sh").write_text(
        'echo "chunk $CHUNK_ID"\ntest $CHUNK_ID = 0 && exit 0\n'
        "test -e once && exit 65\ntouch once; exit 3\n"
    )
    (tmp_path / "logs.yaml").write_text(PIPELINE)
    return tmp_path


@pytest.fixture
def job_id(run: Run) -> str:
    answer = run("job", "run", "logs.yaml", "--json", "--max-retries=0")
    assert answer.code == 1
    return str(answer.json["id"])


def test_the_log_of_the_failed_step_or_of_the_options_is_shown(run: Run, job_id: str) -> None:
    logs = ["job", "logs", job_id[:8]]
    assert run(*logs).out == "chunk 1\n"
    five = "".join(f"line {i}\n" for i in range(1, 6))
    assert run(*logs, "--step", "first").out == five
    assert run(*logs, "--step", "first", "--lines", "2").out == "line 4\nline 5\n"
    assert run(*logs, "--step", "first", "--lines", "9").out == five
    assert run(*logs, "--step", "many", "--chunk", "0").out == "chunk 0\n"
    assert run(*logs, "--chunk", "1", "--attempt", "2").out == "chunk 1\n"


def test_missing_logs_are_reported(run: Run, job_id: str) -> None:
    missing = run("job", "logs", job_id, "--step", "many", "--chunk", "7")
    assert missing.code == 1
    assert "there is no log of step 'many', chunk 7; there are logs of step '" in missing.err
    unknown = run("job", "logs", job_id, "none")
    assert unknown.code == 2
    assert ": 'first', 'many'" in unknown.err
    assert "expected a step of " in unknown.err
    assert run("job", "logs", job_id, "first", "--lines", "1").out == "line 5\n"
    refused = run("job", "logs", job_id, "first", "--step", "many", "--lines", "0")
    assert (refused.code, refused.err.count("\n  ")) == (2, 2)


def test_all_logs_of_a_job_that_has_ended_are_followed_to_their_end(run: Run, job_id: str) -> None:
    answer = run("job", "logs", job_id, "--follow")
    assert answer.out.startswith("==> first, attempt 1\nline 1\n")
    assert "==> many [1], attempt 2\nchunk 1\n" in answer.out
    only = run("job", "logs", job_id, "-f", "--step", "first", "--lines", "1")
    assert only.out == "==> first, attempt 1\nline 5\n"


@pytest.mark.slow
def test_a_log_is_followed_while_it_is_written(run: Run, begin: Begin, folder: Path) -> None:
    (folder / "slow.sh").write_text("echo begun\nwhile ! test -e go; do sleep 0.1; done\necho on\n")
    sent = run("job", "submit", "slow.sh", "--json").json
    following = begin("job", "logs", sent["id"], "--follow")
    following.read_until("begun")
    (folder / "go").touch()
    answer = following.end()
    assert (answer.code, answer.out) == (0, "on\n")


def test_only_the_last_lines_of_a_long_log_are_shown(run: Run, folder: Path) -> None:
    lines = [f"{i:06d} " + "x" * 90 for i in range(3000)]  # several blocks
    (folder / "data.txt").write_text("\n".join(lines) + "\nno end")
    (folder / "long.sh").write_text("cat data.txt\n")
    job_id = run("job", "run", "long.sh", "--json").json["id"]
    for count in (1, 2, 700, 2000, 3001, 5000):
        shown = run("job", "logs", job_id, "--lines", str(count)).out
        assert shown == "\n".join([*lines, "no end"][-count:])


def test_a_log_larger_than_the_memory_is_shown_in_bounded_memory(tmp_path):
    # Sparse: it takes no space on the disk.
    log, size = tmp_path / "attempt-1.log", scaled(1 << 26, 1 << 30)
    with log.open("wb") as opened:
        opened.truncate(size)
        opened.seek(0, 2)
        opened.write(b"\nthe last line\n")
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from hyperplane.cli import job_inspect\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"job_inspect._write_end(Path({str(log)!r}), None)\n"
        f"job_inspect._write_end(Path({str(log)!r}), 1)\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print((after - before) // 1024, file=sys.stderr)\n"
    )
    counting = (
        "import sys; print(sum(len(b) for b in iter(lambda: sys.stdin.buffer.read(1 << 20), b'')))"
    )
    shown = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    counted = subprocess.run(
        [sys.executable, "-c", counting], stdin=shown.stdout, capture_output=True, check=True
    )
    _, megabytes = shown.communicate(timeout=120)
    last = len("the last line\n")
    assert int(counted.stdout) == size + 1 + 2 * last
    assert int(megabytes) < 32
