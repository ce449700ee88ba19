"""Objects on a local disk, in memory and on an S3 server: hyperplane, fsspec and obstore.

hyperplane's store layer retries, limits concurrent requests and writes atomically through fsspec;
``fsspec`` is the file system's own bulk calls without that; ``obstore`` is the Rust library, with
as many threads as hyperplane's limit. Measured are objects of 10 kB, 1 GB in parts of 64 MB, and
one file of 1 GB: wall time, and CPU time of the client. Each measurement is a separate process.
The S3 server is the one of the tests (moto), which is slower than its clients: compare CPU times
there. obstore is no dependency of hyperplane: ``pip install obstore``.

    python benchmarks/object_stores.py --objects 2000 --size 1GB --rounds 5
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import abab

CLIENTS = ("hyperplane", "fsspec", "obstore")
SMALL, PART = 10_000, 64_000_000
KEY, SECRET, REGION = "tester", "sesame", "eu-west-1"
Objects = dict[str, bytes]


class Client(Protocol):
    """The operations that are measured, on the objects below one folder."""

    def put_all(self, objects: Objects) -> None: ...
    def count(self) -> int: ...
    def get_all(self, names: list[str]) -> int: ...
    def put_file(self, file: Path, name: str) -> None: ...
    def remove(self, names: list[str]) -> None: ...


class HyperplaneClient:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        from hyperplane.objectstore.save_target import resolve_target
        from hyperplane.objectstore.store_files import StoreFiles

        target = resolve_target(url, options)
        self.folder, self.store = target.path, StoreFiles(target.store)

    def put_all(self, objects: Objects) -> None:
        self.store.map_concurrently(
            lambda name: self.store.put(f"{self.folder}/{name}", objects[name]), list(objects)
        )

    def count(self) -> int:
        return len(self.store.list_files(self.folder))

    def get_all(self, names: list[str]) -> int:
        sizes = self.store.map_concurrently(
            lambda name: len(self.store.get(f"{self.folder}/{name}") or b""), names
        )
        return sum(sizes)

    def put_file(self, file: Path, name: str) -> None:
        from hyperplane.objectstore.multipart_upload import MultipartUpload

        MultipartUpload(file).put(self.store, f"{self.folder}/{name}")

    def remove(self, names: list[str]) -> None:
        self.store.remove(f"{self.folder}/{name}" for name in names)


class FsspecClient:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        import fsspec

        self.system, self.folder = fsspec.url_to_fs(url, **options)
        self.system.makedirs(self.folder, exist_ok=True)

    def put_all(self, objects: Objects) -> None:
        self.system.pipe({f"{self.folder}/{name}": data for name, data in objects.items()})

    def count(self) -> int:
        self.system.invalidate_cache()
        return len(self.system.find(self.folder, detail=True))

    def get_all(self, names: list[str]) -> int:
        contents = self.system.cat([f"{self.folder}/{name}" for name in names])
        return sum(map(len, contents.values() if isinstance(contents, dict) else [contents]))

    def put_file(self, file: Path, name: str) -> None:
        self.system.put_file(str(file), f"{self.folder}/{name}")

    def remove(self, names: list[str]) -> None:
        self.system.rm([f"{self.folder}/{name}" for name in names])


class ObstoreClient:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        import obstore
        from obstore.store import LocalStore, MemoryStore, S3Store

        from hyperplane.objectstore.store_files import MAX_LIMIT

        self.obstore, self.pool = obstore, ThreadPoolExecutor(MAX_LIMIT)
        protocol, _, path = url.rpartition("://")
        if protocol == "s3":
            bucket, _, folder = path.partition("/")
            self.store: Any = S3Store(
                bucket,
                prefix=folder,
                endpoint=options["endpoint_url"],
                access_key_id=options["key"],
                secret_access_key=options["secret"],
                region=REGION,
                client_options={"allow_http": True},
            )
        else:
            self.store = MemoryStore() if protocol == "memory" else LocalStore(path, mkdir=True)

    def put_all(self, objects: Objects) -> None:
        list(self.pool.map(lambda one: self.obstore.put(self.store, *one), objects.items()))

    def count(self) -> int:
        return sum(map(len, self.obstore.list(self.store)))

    def get_all(self, names: list[str]) -> int:
        def length(name: str) -> int:
            # The other clients return bytes, not a buffer of Rust.
            return len(bytes(self.obstore.get(self.store, name).bytes()))

        return sum(self.pool.map(length, names))

    def put_file(self, file: Path, name: str) -> None:
        self.obstore.put(self.store, name, file)

    def remove(self, names: list[str]) -> None:
        self.obstore.delete(self.store, names)


def measure_client(client: Client, small: int, size: int, folder: str) -> dict[str, float]:
    """Return the wall and CPU seconds of each operation, by its name."""
    figures: dict[str, float] = {}

    def measure(name: str, call: Callable[[], Any], expected: int | None = None) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        result = call()
        figures[name] = time.perf_counter() - began
        figures[f"{name}: CPU"] = time.process_time() - cpu
        assert expected is None or result == expected, (name, result, expected)

    objects = {f"small-{number:05}": os.urandom(SMALL) for number in range(small)}
    measure("put objects", lambda: client.put_all(objects))
    measure("list objects", client.count, small)
    measure("get objects", lambda: client.get_all(list(objects)), small * SMALL)
    client.remove(list(objects))
    block = os.urandom(PART)
    parts = {f"part-{number:05}": block for number in range(max(1, size // PART))}
    measure("put parts", lambda: client.put_all(parts))
    measure("get parts", lambda: client.get_all(list(parts)), len(parts) * PART)
    client.remove(list(parts))
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in parts:
            file.write(block)
        file.flush()
        measure("put one file", lambda: client.put_file(Path(file.name), "file"))
    client.remove(["file"])
    return figures


def run_once(arguments: argparse.Namespace) -> None:
    """Run one measurement in this process; print it as JSON."""
    from hyperplane.core.units import parse_bytes

    options: dict[str, Any] = {}
    url = f"{arguments.folder}/{uuid.uuid4().hex}"
    if arguments.s3:
        client = {"region_name": REGION}
        options = {
            "key": KEY, "secret": SECRET, "endpoint_url": arguments.s3, "client_kwargs": client
        }  # fmt: skip
        url = f"s3://{arguments.bucket}/{uuid.uuid4().hex}"
    elif arguments.stores == ["memory"]:
        url = f"memory://{uuid.uuid4().hex}"
    kinds = {"hyperplane": HyperplaneClient, "fsspec": FsspecClient, "obstore": ObstoreClient}
    client = kinds[arguments.once](url, options)
    size = parse_bytes(arguments.size)
    print(json.dumps(measure_client(client, arguments.objects, size, arguments.folder)))


@contextlib.contextmanager
def s3_server() -> Iterator[tuple[str, str]]:
    """Run the S3 server of the tests; yield its URL and the name of a bucket."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "storage"))
    import servers

    with tempfile.TemporaryDirectory() as folder, servers.s3(Path(folder)) as url:
        region = {"region_name": REGION}
        options = {"key": KEY, "secret": SECRET, "endpoint_url": url, "client_kwargs": region}
        yield url, servers.bucket("s3", options).url.removeprefix("s3://")


def compare(store: str, arguments: argparse.Namespace) -> None:
    """Run all clients alternately on one store, and print a report for each pair."""
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
        contextlib.ExitStack() as stack,
    ):
        command = [__file__, "--objects", str(arguments.objects), "--size", arguments.size]
        command += ["--folder", folder, "--stores", store]
        if store == "s3":
            url, bucket = stack.enter_context(s3_server())
            command += ["--s3", url, "--bucket", bucket]
        results = abab.run_alternately(
            {name: [*command, "--once", name] for name in CLIENTS}, arguments.rounds
        )
    for other in ("fsspec", "obstore"):
        title = f"{store}: {arguments.objects} objects and {arguments.size}, against {other}"
        abab.print_report(title, results, "hyperplane", other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="+", default=["local", "memory", "s3"])
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk to measure")
    for internal in ("--s3", "--bucket"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--once", choices=CLIENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        run_once(arguments)
        return
    for store in arguments.stores:
        compare(store, arguments)


if __name__ == "__main__":
    main()
