"""Submission of a job with many tasks to Vertex AI, Cloud Run, AWS Batch and AWS Glue.

The services are those of the tests: moto, and the server that validates requests of Google. No
container starts, so that tasks stay in the queue. For each runner a separate process submits a job
with one step in ``--tasks`` chunks and supervises it, until as many tasks are in the queue as the
runner has at once (``--at-once`` sets ``max_parallel``). Printed are

- the seconds from the start of the program until the first request arrives, with all imports, and
  the CPU seconds until then, which other programs of the machine change less;
- the requests to all services for each task until they are in the queue, with those of the check;
- the CPU seconds and the largest memory of the process, also with a job of one task.

    python benchmarks/cloud_submissions.py --tasks 10000 --runners vertex aws-batch cloud-run glue
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
#: Seconds after which a process has not submitted its tasks.
_LIMIT = 900.0
#: What a process runs: it prints the time of its submission, and continues until it is killed.
_SUBMIT = """
import asyncio, json, sys, time
options, runner, tasks, at_once = json.loads(sys.argv[1])
began = time.time()
from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners import registry
from hyperplane.jobs.store.jobs_home import open_store
step = Step(name="years", kind="command", argv=("true",), chunks=tasks, max_parallel=at_once)
resolved = registry.resolve_options(runner, options)
job = new_job(Pipeline.from_steps("many", [step]), runner=runner, runner_options=resolved)
print(began, flush=True)
asyncio.run(run_in_foreground(open_store(), job, resolved, quiet=True))
"""


class CountingProxy:
    """Passes requests on to moto; ``times`` are those of their arrival."""

    def __init__(self, moto: str) -> None:
        self.times: list[float] = []
        proxy, address = self, urlsplit(moto).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy.times.append(time.time())
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                connection = http.client.HTTPConnection(address, timeout=60)
                headers = {
                    name: text for name, text in self.headers.items() if name != "Connection"
                }
                connection.request(str(self.command), self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, text)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)
                connection.close()

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST  # noqa: N815 - names of the class

            def log_message(self, *arguments: Any) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _record_times(service: Any) -> list[float]:
    """Return a list to which the times of the requests of a service are added."""
    times: list[float] = []
    answer = service.answer

    def record(handler: Any, body: bytes) -> None:
        times.append(time.time())
        answer(handler, body)

    service.answer = record
    return times


@contextlib.contextmanager
def _service(runner: str, folder: Path) -> Iterator[tuple[Any, dict[str, str], Any, Any]]:
    """Run the service of a runner; yield it, variables, options, and the lists of times."""
    import batch_service
    import cloud_run_service
    import glue_service
    import google_service
    import vertex_service

    if runner in ("vertex", "cloud-run"):
        module: Any = vertex_service if runner == "vertex" else cloud_run_service
        with module.running(folder) as service:
            service.waiting_for = "machines"
            variables, options = google_service.variables(service), google_service.options()
            yield service, variables, options, [_record_times(service)]
        return
    with batch_service.running_moto(folder) as moto:
        proxy = CountingProxy(moto)
        place = folder / "tasks"
        place.mkdir()
        if runner == "glue":
            glue_service.create_role(moto)
            service, module = glue_service.GlueService(moto, place), glue_service
        else:
            service, module = batch_service.BatchService(moto, place), batch_service
        service.waiting_for = "machines"
        try:
            variables = module.variables(proxy.url, service.url)
            yield service, variables, module.options(), [_record_times(service), proxy.times]
        finally:
            service.close()
            proxy.close()


def _count_submitted(service: Any, runner: str) -> int:
    """Return the number of tasks that the service has."""
    if runner != "aws-batch":
        return len(service.ids())
    # The id of an array is followed by those of its tasks.
    return len(service.tasks)


def _memory(pid: int) -> float:
    """Return the largest memory of a process so far, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / 1e6


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(runner: str, tasks: int, at_once: int | None) -> dict[str, Any]:
    """Submit a job, and return the figures."""
    from hyperplane.jobs.runners.registry import RUNNERS

    wanted = min(tasks, at_once or RUNNERS.load(runner).at_once)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "service").mkdir()
        with _service(runner, folder / "service") as (service, variables, options, times):
            environment = {**os.environ, **variables, "XDG_STATE_HOME": str(folder / "state"),
                           "HOME": str(folder)}  # fmt: skip
            argument = json.dumps([options, runner, tasks, at_once])
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-c", _SUBMIT, argument],
                    env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=log,
                    start_new_session=True, text=True,
                )  # fmt: skip
            try:
                assert process.stdout is not None
                began = float(process.stdout.readline() or "nan")
                deadline, first_cpu = time.monotonic() + _LIMIT, 0.0
                while _count_submitted(service, runner) < wanted:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit((folder / "log").read_text()[-2000:])
                    if not first_cpu and any(times):
                        first_cpu = _cpu_seconds(process.pid)
                    time.sleep(0.02)
                counted = sum(map(len, times))
                operations = Counter(name for name, _ in service.requests)
                seconds = time.time() - began
                time.sleep(2)  # the answers
                memory, cpu = _memory(process.pid), _cpu_seconds(process.pid)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
    return {
        "runner": runner, "tasks": tasks, "in the queue": wanted,
        "first request s": round(min(min(each) for each in times if each) - began, 2),
        "CPU s until then": round(first_cpu, 2),
        "all submitted s": round(seconds, 1),
        "requests for each task": round(counted / wanted, 2),
        "CPU s": round(cpu, 1),
        "memory MB": round(memory, 1),
        "load": round(os.getloadavg()[0], 1),
        "operations": dict(operations.most_common(6)),
    }  # fmt: skip


def main() -> None:
    """Measure, and print one JSON document for each runner."""
    names = ["vertex", "aws-batch", "cloud-run", "glue"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--runners", nargs="+", default=names, choices=names)
    arguments = parser.parse_args()
    for name in ("", "jobs", "storage"):
        sys.path.insert(0, str(ROOT / "tests" / name))
    sys.path.insert(0, str(ROOT))
    for runner in arguments.runners:
        for tasks in (1, arguments.tasks):
            print(json.dumps(measure(runner, tasks, arguments.at_once)), flush=True)


if __name__ == "__main__":
    main()
