"""Requests per second of ``hyperplane serve`` and of a server that is written by hand.

The latter is FastAPI with ``model.predict`` in its handler. Both have one process on one core, the
same model and the same uvicorn; the clients are on another core and keep their connections. The two
alternate; each round has a new process. With one client per connection, each client sends its next
request when it has its answer. CPU time of the server for each request is a fair comparison on a
machine where other programs run, too.

    python benchmarks/serve.py --rounds 4 --seconds 4 --clients 1 16

Needs the extra serve, and fastapi.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

BY_HAND = """
import sys
from typing import Any
import fastapi, pandas, uvicorn
from pydantic import BaseModel
import hyperplane
model = hyperplane.load(sys.argv[1] + "/model.skops")
app = fastapi.FastAPI()

class Body(BaseModel):
    instances: list[dict[str, Any]]

@app.post("/v1/models/delays:predict")
HANDLER predict(body: Body):
    return {"predictions": model.predict(pandas.DataFrame(body.instances)).tolist()}

uvicorn.run(app, port=int(sys.argv[2]), access_log=False, log_level="warning")
"""
OURS = "from hyperplane.cli import main; main()"
MAKE_MODEL = """
import sys, numpy, pandas, hyperplane
from sklearn.linear_model import LogisticRegression
dice = numpy.random.default_rng(0)
frame = pandas.DataFrame(dice.normal(size=(1000, 8)), columns=list("abcdefgh"))
model = LogisticRegression().fit(frame, frame.sum(axis=1) > 0)
hyperplane.save(model, sys.argv[1] + "/delays/model.skops")
"""


def start(name: str, folder: str, port: int) -> subprocess.Popen[bytes]:
    """Start a server on the first core."""
    if name == "hyperplane serve":
        code, arguments = OURS, ["serve", f"{folder}/delays", "--port", str(port)]
    else:
        code = BY_HAND.replace("HANDLER", "def" if "threads" in name else "async def")
        arguments = [f"{folder}/delays", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, "-W", "ignore", "-c", code, *arguments],
        stdout=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


def request(number: int) -> bytes:
    """Return a request with one instance."""
    instance = dict.fromkeys("abcdefgh", number % 100 / 50 - 1)
    body = json.dumps({"instances": [instance]}).encode()
    head = (
        "POST /v1/models/delays:predict HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def measure(
    server: psutil.Process, port: int, clients: int, seconds: float
) -> tuple[float, float, float, float]:
    """Return requests per second, and median, p99 and CPU time of a request in milliseconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    before = sum(server.cpu_times()[:2])

    async def client(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = first
        while (began := time.perf_counter()) < end:
            writer.write(request(number))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            latencies.append(time.perf_counter() - began)
            expected = number % 100 > 50
            found = json.loads(body)["predictions"]
            assert number % 100 == 50 or found == [expected], (number, body)
            number += 1
        writer.close()

    await asyncio.gather(*(client(17 * number) for number in range(clients)))
    latencies.sort()
    p99 = latencies[int(len(latencies) * 0.99)]
    cpu = (sum(server.cpu_times()[:2]) - before) / len(latencies)
    return len(latencies) / seconds, statistics.median(latencies) * 1000, p99 * 1000, cpu * 1000


def run_round(
    name: str, folder: str, port: int, clients: list[int], seconds: float
) -> list[tuple[float, float, float, float]]:
    """Measure a new server with each number of clients."""
    process = start(name, folder, port)
    server = psutil.Process(process.pid)
    try:
        for _ in range(6000):
            try:
                asyncio.run(measure(server, port, 1, 0.3))  # warm
                break
            except OSError:
                assert process.poll() is None, f"{name} has ended"
                time.sleep(0.1)
        return [asyncio.run(measure(server, port, number, seconds)) for number in clients]
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--port", type=int, default=18_431)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {1})
    names = ["FastAPI, async", "FastAPI, threads", "hyperplane serve"]
    results: dict[str, list[list[tuple[float, float, float, float]]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", MAKE_MODEL, folder], check=True)
        assert Path(folder, "delays").exists()
        for turn in range(arguments.rounds):
            for offset, name in enumerate(names):
                port = arguments.port + 3 * turn + offset
                results[name].append(
                    run_round(name, folder, port, arguments.clients, arguments.seconds)
                )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for index, clients in enumerate(arguments.clients):
        print(
            f"\n{clients} clients     requests/s   median ms   p99 ms   CPU ms"
            "   hyperplane / it: requests (min-max), CPU (min-max)"
        )
        for name in names:
            rows = [turn[index] for turn in results[name]]
            ours = [turn[index] for turn in results["hyperplane serve"]]
            medians = (statistics.median(column) for column in zip(*rows, strict=True))
            print(
                "{:18}{:8,.0f}{:12.2f}{:9.2f}{:9.3f}".format(name, *medians),
                *(
                    f"{statistics.median(ratios):9.2f}  ({min(ratios):.2f}-{max(ratios):.2f})"
                    for column in (0, 3)
                    for ratios in [[a[column] / b[column] for a, b in zip(ours, rows, strict=True)]]
                ),
            )


if __name__ == "__main__":
    main()
