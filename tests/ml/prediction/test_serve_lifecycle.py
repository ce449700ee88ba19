"""Start and end of model servers: files, signals, several workers, jobs."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from prediction_cases import Flights
from scale import FULL
from serve_requests import Server, running_command
from subprograms import Program, dead, wait_until

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.ml import ModelRegistry, serve
from hyperplane.utils import get_service_url

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.process


@pytest.mark.slow
def test_sigterm_answers_the_encrypted_requests_in_flight(
    flights: Flights, certificate: Path
) -> None:
    answers = []
    files = f"--certificate {certificate}/certificate.pem --key {certificate}/key.pem"
    # The request waits for others, and so it is in flight when the signal arrives.
    arguments = [
        str(flights.folder / "model" / "model.skops"),
        "--batch-wait-ms",
        "2500",
        *files.split(),
    ]
    with running_command(flights.folder, *arguments) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert get_service_url("model") == server.url
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request("/healthz")
        with pytest.raises(OSError, match=r"reset|closed"):
            Server(server.url.replace("https", "http")).request("/healthz")
        server.context = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
        server.context.check_hostname = False
        request = threading.Thread(target=lambda: answers.append(server.predict([[1, 2]], "model")))
        request.start()
        in_progress = 'requests_in_progress{model="model"} 1.0'
        wait_until(lambda: in_progress in server.request("/metrics").text, 60)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        request.join(60)
        assert [answer.code for answer in answers] == [200]
        np.testing.assert_allclose(answers[0].content["predictions"], [0], atol=1e-9)
        assert server.process.wait(60) == 0
    assert get_service_url("model").endswith(":8787")


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="starts several servers: at full scale")
def test_workers_share_a_port_and_are_replaced(
    flights: Flights, capfd: pytest.CaptureFixture[str]
) -> None:
    models = ModelRegistry(flights.folder / "models")
    models.create("delay", flights.url)
    with serve(flights.folder / "models" / "delay", workers=2, name="a-service") as handle:
        server = Server(handle.url)
        assert get_service_url("a-service") == handle.url
        assert server.predict([[3, 1]], "delay").headers["x-model-version"] == "v1"
        parent = psutil.Process(handle._process.pid)
        workers = parent.children()
        assert len(workers) == 2
        workers[0].kill()
        wait_until(
            lambda: (
                len([each for each in parent.children() if not dead(each)]) == 2
                and workers[0] not in parent.children()
            ),
            120,
        )
        np.testing.assert_allclose(
            server.predict([[3, 1]], "delay").content["predictions"], [5], atol=1e-9
        )
        # Metrics are those of all workers, also of ended ones.
        name = 'hyperplane_serve_requests_total{code="200",model="delay",version="v1"} 2.0'
        assert name in server.request("/metrics").text
        # The reason of a worker that cannot start is reported.
        shutil.rmtree(flights.folder / "models")
        capfd.readouterr()
        parent.children()[0].kill()
        errors = []
        wait_until(
            lambda: errors.append(capfd.readouterr().err) or "exit code 1: " in "".join(errors), 120
        )
        processes = [parent, *parent.children()]
    handle.close()
    assert all(dead(process) for process in processes)


@pytest.mark.skipif(not FULL, reason="other tests end servers: at full scale")
def test_a_server_ends_with_a_parent_that_is_killed(flights: Flights, tmp_path: Path) -> None:
    program = Program(
        f"""
        import hyperplane.ml, time
        server = hyperplane.ml.serve({str(flights.url)!r})
        print("url", server.url, flush=True)
        time.sleep(600)
        """,
        tmp_path,
        start="",
    )
    url = program.line("url")
    assert Server(url).predict([[1, 1]], "model").code == 200
    program.process.kill()
    wait_until(lambda: not program.family(), 60)
    program.finish()


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="starts several servers: at full scale")
def test_errors_of_the_child_process_are_those_of_the_call(flights: Flights) -> None:
    with pytest.raises(RequestError, match="nothing is served") as caught:
        serve(flights.folder)
    assert caught.value.faults[0].where == "model"
    with serve(flights.url) as handle:
        port = int(handle.url.rsplit(":", 1)[1])
        with pytest.raises(RequestError, match=f"127.0.0.1:{port}: expected a free address"):
            serve(flights.url, port=port)


@pytest.mark.skipif(not FULL, reason="other tests serve, and cancel steps: at full scale")
def test_a_bash_step_of_a_job_serves_until_it_is_cancelled(
    flights: Flights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    Path("serve.sh").write_text(
        f'exec "{sys.executable}" -c "import hyperplane.cli; hyperplane.cli.main()" '
        f'serve "{flights.url}" --port {port} --name delays\n'
    )
    Path("pipeline.yaml").write_text(
        "pipeline:\n  name: serve\n  tasks:\n"
        f"    - {{name: server, type: bash, bash_script_path: serve.sh, port: {port}}}\n"
    )
    job = hyperplane.jobs.submit("pipeline.yaml")
    try:
        wait_until(lambda: not get_service_url("delays").endswith(":8787"), 120)
        server = Server(get_service_url("delays"))
        assert server.predict([[1, 1]], "model").code == 200
    finally:
        job.cancel()
    wait_until(lambda: get_service_url("delays").endswith(":8787"), 120)
