"""Slurm steps with retries, timeouts, signals and secrets."""

import os
import signal
import subprocess
import time

import dask
import fake_slurm
import pytest
from runner_cases import command, make_job, run_rendered, submit_rendered

from hyperplane.jobs.exporters.registry import render

pytestmark = pytest.mark.process

#: Seconds before a retry, longer than a test may take.
LONG_WAITS = {"hyperplane.jobs.retry_wait": "600s", "hyperplane.jobs.retry_wait_most": "600s"}
SECRET = "s3cret $(touch canary) 'quoted'\nsecond line"


def counting(text, **options):
    """A step that counts its attempts in a file, and then does something."""
    return command(
        "x", "bash", "-c", f"echo a >> attempts; n=$(wc -l < attempts); {text}", **options
    )


def attempts(folder):
    return len((folder / "attempts").read_text().split())


@pytest.mark.parametrize(
    ("text", "retries", "code", "attempt_count"),
    [
        ("[ $n = 3 ]", 2, 0, 3),
        ("exit 1", 2, 1, 3),
        ("exit 1", 0, 1, 1),
        ("exit 64", 2, 64, 1),
        ("exec no-such-program 2>/dev/null", 2, 127, 1),
        ("kill -9 $$", 1, 137, 2),
        ("true", 2, 0, 1),
    ],
)
def test_failures_are_retried_except_input_errors(tmp_path, text, retries, code, attempt_count):
    codes, _ = run_rendered(make_job(counting(text, retries=retries), root=tmp_path), tmp_path)
    assert list(codes.values()) == [[code]]
    assert attempts(tmp_path) == attempt_count


def test_a_step_without_retries_has_those_of_its_job(tmp_path):
    run_rendered(make_job(counting("exit 1"), root=tmp_path, max_retries=1), tmp_path)
    assert attempts(tmp_path) == 2


def test_an_attempt_that_times_out_is_ended_and_retried(tmp_path):
    for timeout in (0.5, 5, 50):  # until the second attempt has enough time
        folder = tmp_path / f"{timeout}"
        folder.mkdir()
        # Longer than this test may take.
        step = counting("[ $n = 2 ] || sleep 600", retries=1, timeout=timeout)
        codes, _ = run_rendered(make_job(step, root=folder), folder)
        if list(codes.values()) == [[0]]:
            break
    assert list(codes.values()) == [[0]]
    assert attempts(folder) == 2


def _running(tmp_path, step):
    """Start the script of a step; return once it is ready for a signal or waits for a retry."""
    document = render("slurm", make_job(step, root=tmp_path))[0]
    script = tmp_path / document.name
    script.write_text(document.text)
    script.chmod(0o700)
    stderr = tmp_path / "stderr"
    with stderr.open("wb") as opened:
        process = subprocess.Popen([script], start_new_session=True, stderr=opened)
    deadline = time.monotonic() + 120
    while not ((tmp_path / "ready").exists() or b"; next attempt in " in stderr.read_bytes()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("retries", [0, 2])
def test_sigterm_reaches_the_step_and_ends_the_retries(tmp_path, retries, send):
    trap = "trap 'kill $!; sleep 0.1; echo ended > ended; exit 3' TERM"
    text = f"sleep 600 & {trap}; touch ready; wait"
    with dask.config.set(LONG_WAITS):
        process = _running(tmp_path, counting(text, retries=retries))
    # Slurm sends SIGTERM to the script before the limit, to all processes in a cancellation.
    send(process.pid, signal.SIGTERM)
    assert process.wait(120) == 3
    assert (tmp_path / "ended").exists()
    assert attempts(tmp_path) == 1


def test_sigterm_ends_the_wait_for_a_retry(tmp_path):
    with dask.config.set(LONG_WAITS):
        process = _running(tmp_path, counting("exit 5", retries=2))
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(120) == 5
    assert attempts(tmp_path) == 1


def _secret_step(tmp_path, *names):
    text = f"printenv -0 {' '.join(names)} > seen"
    secrets = ("API_TOKEN", "database/pass-word")
    return command("x", "bash", "-c", text, secrets=secrets)


def test_secrets_are_only_in_the_environment_of_their_step(tmp_path, monkeypatch):
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv("DATABASE_PASS_WORD", "from the environment")
    names = (
        "API_TOKEN", "HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN", "DATABASE_PASS_WORD",
        "HYPERPLANE_CUSTOM_SECRET_KEY_DATABASE_PASS_WORD",
    )  # fmt: skip
    step = _secret_step(tmp_path, *names)
    other = command("other", "bash", "-c", "env > others", depends_on=())
    # A parameter of that name does not replace the secret.
    job = make_job(step, other, root=tmp_path, parameters={"api-token": "mine"})
    texts = [document.text for document in render("slurm", job)]
    run_rendered(job, tmp_path)
    seen = (tmp_path / "seen").read_bytes().decode().split("\0")[:-1]
    assert seen == [SECRET, SECRET, "from the environment", "from the environment"]
    assert not any("s3cret" in text or "from the env" in text for text in texts)
    assert "s3cret" not in (tmp_path / "others").read_text()
    for batch_job in fake_slurm.jobs(tmp_path / "slurm"):
        assert "s3cret" not in str(
            [batch_job["arguments"], batch_job["script"], batch_job["options"]]
        )
    assert list(tmp_path.rglob("canary")) == []


def test_a_secret_may_be_a_file(tmp_path, monkeypatch):
    folder = tmp_path / "the secrets"
    (folder / "database").mkdir(parents=True)
    (folder / "database" / "pass-word").write_text(SECRET + "\n\n")
    monkeypatch.setenv("API_TOKEN", "x")
    monkeypatch.delenv("DATABASE_PASS_WORD", raising=False)
    with dask.config.set({"hyperplane.jobs.secrets": str(folder)}):
        run_rendered(
            make_job(_secret_step(tmp_path, "DATABASE_PASS_WORD"), root=tmp_path), tmp_path
        )
    assert (tmp_path / "seen").read_text() == SECRET + "\0"


def test_without_its_secrets_nothing_is_submitted(tmp_path, monkeypatch):
    monkeypatch.delenv("API_TOKEN", raising=False)
    step = _secret_step(tmp_path, "API_TOKEN")
    state, done = submit_rendered(make_job(step, root=tmp_path), tmp_path)
    assert done.returncode == 2
    assert "no secret: set the variable API_TOKEN, or write the file" in done.stderr
    assert fake_slurm.jobs(state) == []


@pytest.mark.parametrize(("program", "code"), [("./gone", 127), ("/etc", 126)])
def test_a_program_that_cannot_be_started_is_not_tried_again(tmp_path, program, code):
    codes, _ = run_rendered(make_job(command("x", program, retries=2), root=tmp_path), tmp_path)
    assert list(codes.values()) == [[code]]
    (log,) = tmp_path.rglob("*.log")
    assert log.read_text().count(program) == 1
