"""Training program of the image: a sum by a chief, workers and one parameter server.

``python -m trainer.task --below N``, started by ``hyperplane train``: each rank sends its share of
the sum of the numbers below N to the parameter server, and the chief prints the sum of all.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time


def serve(port: int) -> None:
    """Add numbers; answer "get" with how many there were, and their sum."""
    count = total = 0
    with socket.create_server(("", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as stream:
                word = stream.readline().strip()
                if word != "get":
                    count, total = count + 1, total + int(word)
                stream.write(f"{count} {total}\n")


def send(address: str, word: str) -> tuple[int, int]:
    """Send a word to the parameter server, which may not listen yet, and return its answer."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            connection = socket.create_connection((host, int(port)), timeout=10)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    with connection, connection.makefile("rw") as stream:
        stream.write(f"{word}\n")
        stream.flush()
        count, total = map(int, stream.readline().split())
        return count, total


def main() -> None:
    """Run the role that TF_CONFIG names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--below", type=int, required=True)
    parser.add_argument("--job-dir")
    below = parser.parse_args().below
    config = json.loads(os.environ["TF_CONFIG"])
    [server] = config["cluster"]["ps"]
    role = config["task"]["type"]
    if role == "ps":
        serve(int(server.rpartition(":")[2]))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    count, total = send(server, str(sum(range(rank, below, size))))
    if role == "chief":
        while count < size:
            time.sleep(0.1)
            count, total = send(server, "get")
    sys.stdout.write(f"{role} {rank} of {size}: total {total}\n")


if __name__ == "__main__":
    main()
