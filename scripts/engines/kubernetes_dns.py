"""DNS server of the test cluster: resolves ``<service>.<namespace>.svc.cluster.local``.

``kubernetes_dns.py KUBECONFIG ADDRESS`` answers on UDP port 53 of that address, and asks the API
server for each query. Other names do not exist.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import urllib.request
from pathlib import Path

A, ANY = 1, 255


def address_of(name: str, configuration: dict[str, str]) -> str | None:
    """Return the address of a service, or None."""
    parts = name.lower().split(".")
    if len(parts) != 5 or parts[2:] != ["svc", "cluster", "local"]:
        return None
    url = f"{configuration['server']}/api/v1/namespaces/{parts[1]}/services/{parts[0]}"
    request = urllib.request.Request(  # noqa: S310 - the API server
        url, headers={"Authorization": f"Bearer {configuration['token']}"}
    )
    trusted = ssl.create_default_context(cafile=configuration["certificate"])
    try:
        with urllib.request.urlopen(  # noqa: S310
            request, context=trusted, timeout=5
        ) as answer:
            address: str = json.load(answer)["spec"]["clusterIP"]
            return address
    except OSError:
        return None


def reply(question: bytes, configuration: dict[str, str]) -> bytes:
    """Return the answer to a DNS message with one question."""
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    (kind,) = struct.unpack("!H", question[at + 1 : at + 3])
    question_section = question[12 : at + 5]
    address = address_of(".".join(labels), configuration)
    answers = 1 if address and kind in (A, ANY) else 0
    flags = 0x8580 | (0 if address else 3)  # 3: there is no such name
    head = question[:2] + struct.pack("!HHHHH", flags, 1, answers, 0, 0)
    if not (answers and address):
        return head + question_section
    record = struct.pack("!HHHIH", 0xC00C, A, 1, 2, 4) + socket.inet_aton(address)
    return head + question_section + record


def main() -> None:
    """Answer queries until the process ends."""
    file, listen_address = sys.argv[1:3]
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    configuration = {
        "server": content["clusters"][0]["cluster"]["server"],
        "certificate": content["clusters"][0]["cluster"]["certificate-authority"],
        "token": content["users"][0]["user"]["token"],
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((listen_address, 53))
        while True:
            question, client = server.recvfrom(4096)
            try:
                server.sendto(reply(question, configuration), client)
            except (IndexError, struct.error):
                continue  # not a DNS query


if __name__ == "__main__":
    main()
