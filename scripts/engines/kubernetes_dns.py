"""DNS server of the test cluster: resolves ``<service>.<namespace>.svc.cluster.local``.

``kubernetes_dns.py KUBECONFIG ADDRESS`` answers on UDP port 53 of that address, and asks the API
server for each query. A headless service has the addresses of its pods, and
``<hostname>.<service>.<namespace>.svc.cluster.local`` is one of them. Other names do not exist.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import urllib.request
from pathlib import Path
from typing import Any

A, ANY = 1, 255
SUFFIX = ["svc", "cluster", "local"]


def find_addresses(name: str, configuration: dict[str, str]) -> list[str]:
    """Return the addresses of a service or of a pod; none if it does not exist."""
    parts = name.lower().split(".")
    if len(parts) not in (5, 6) or parts[-3:] != SUFFIX:
        return []
    host, service, namespace = parts[-6] if len(parts) == 6 else None, parts[-5], parts[-4]
    try:
        address = _read("services", namespace, service, configuration)["spec"]["clusterIP"]
        if address != "None":
            return [address] if host is None else []
        endpoints = _read("endpoints", namespace, service, configuration)
    except OSError:
        return []
    return [
        each["ip"]
        for subset in endpoints.get("subsets") or ()
        for each in subset.get("addresses") or ()
        if host in (None, each.get("hostname"))
    ]


def _read(kind: str, namespace: str, name: str, configuration: dict[str, str]) -> dict[str, Any]:
    url = f"{configuration['server']}/api/v1/namespaces/{namespace}/{kind}/{name}"
    request = urllib.request.Request(  # noqa: S310 - the API server
        url, headers={"Authorization": f"Bearer {configuration['token']}"}
    )
    trusted = ssl.create_default_context(cafile=configuration["certificate"])
    with urllib.request.urlopen(request, context=trusted, timeout=5) as answer:  # noqa: S310
        content: dict[str, Any] = json.load(answer)
        return content


def reply(question: bytes, configuration: dict[str, str]) -> bytes:
    """Return the answer to a DNS message with one question."""
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    (kind,) = struct.unpack("!H", question[at + 1 : at + 3])
    question_section = question[12 : at + 5]
    addresses = find_addresses(".".join(labels), configuration)
    flags = 0x8580 | (0 if addresses else 3)  # 3: there is no such name
    answers = addresses if kind in (A, ANY) else []
    head = question[:2] + struct.pack("!HHHHH", flags, 1, len(answers), 0, 0)
    records = (
        struct.pack("!HHHIH", 0xC00C, A, 1, 2, 4) + socket.inet_aton(address) for address in answers
    )
    return b"".join([head, question_section, *records])


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
