"""A worker of the test framework: a Python process that calls the functions it receives.

It imports only the standard library. Standard input has the owner's address and key in one line and
stays open as long as the owner lives.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from multiprocessing.connection import Client
from typing import Any


def _end_with_owner() -> None:
    sys.stdin.read()  # until the owner closes its end, or ends
    os._exit(0)


def call(function: Any, arguments: Any) -> tuple[bool, Any]:
    """Return whether a call succeeded, and its result or its exception."""
    try:
        return True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - the client raises it
        return False, error


def main() -> None:
    received = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_owner, daemon=True).start()
    limit = received["address_space"]
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    address = (received["host"], received["port"])
    with Client(address, authkey=bytes.fromhex(received["key"])) as owner:
        owner.send("worker")
        while True:
            try:
                function, arguments = owner.recv()
            except EOFError:
                return
            owner.send(call(function, arguments))


if __name__ == "__main__":
    main()
