"""A server that answers listings of S3 and of Google Cloud Storage, for ``shard_plan_store.py``.

It has the requests of one bucket that a listing needs: ``ListObjectsV2``, ``objects.list`` of the
JSON API and metadata, with prefix, delimiter, first key, page size and token. Pages of entries are
made before the first request, so that the server takes little of the time that is measured.
Objects are in folders of 1,000, or all in one, and have log-normal sizes (median 1.2 MB).

    python -m benchmarks.listing_server --objects 100000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, quote, unquote, urlsplit

BUCKET = "files"
_PAGE, _PER_FOLDER = 1_000, 1_000
_TIME = "2026-11-30T12:00:00.000Z"
_XML = (
    "<Contents><Key>{key}</Key><LastModified>{time}</LastModified>"
    "<ETag>&quot;{etag}&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"
    "<ChecksumType>FULL_OBJECT</ChecksumType><Size>{size}</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
_JSON = (
    '{{"kind":"storage#object","id":"{bucket}/{key}/1764500000000000",'
    '"selfLink":"https://www.googleapis.com/storage/v1/b/{bucket}/o/{quoted}",'
    '"mediaLink":"https://storage.googleapis.com/download/storage/v1/b/{bucket}/o/{quoted}?generation=1764500000000000&alt=media",'
    '"name":"{key}","bucket":"{bucket}","generation":"1764500000000000","metageneration":"1",'
    '"contentType":"text/csv","storageClass":"STANDARD","size":"{size}",'
    '"md5Hash":"1B2M2Y8AsgTpgAmY7PhCfg==","crc32c":"AAAAAA==","etag":"CICy/7Xo+/ICEAE=",'
    '"timeCreated":"{time}","updated":"{time}","timeStorageClassUpdated":"{time}"}}'
)
_SHORT_JSON = '{{"name":"{key}","size":"{size}"}}'


class Bucket:
    """Objects in the order of their keys, and the text of their entries by template."""

    def __init__(self, objects: int, *, flat: bool) -> None:
        sizes = random.Random(0)
        self.keys = [
            f"in/part-{number:08d}.csv"
            if flat
            else f"in/day-{number // _PER_FOLDER:05d}/part-{number % _PER_FOLDER:05d}.csv"
            for number in range(objects)
        ]
        self.sizes = [int(sizes.lognormvariate(14, 1)) for _ in self.keys]
        self.pages: dict[tuple[str, int, int], bytes] = {}

    def prepare(self, template: str, separator: str) -> None:
        """Make the text of all pages that begin at a multiple of the page size."""
        for first in range(0, len(self.keys), _PAGE):
            last = min(first + _PAGE, len(self.keys))
            self.pages[template, first, last] = self._format(template, separator, first, last)

    def entries(self, template: str, separator: str, first: int, last: int) -> bytes:
        """Return the text of the entries from ``first`` to before ``last``."""
        page = self.pages.get((template, first, last))
        return self._format(template, separator, first, last) if page is None else page

    def _format(self, template: str, separator: str, first: int, last: int) -> bytes:
        return separator.join(
            template.format(
                bucket=BUCKET,
                key=self.keys[number],
                quoted=quote(self.keys[number], safe=""),
                size=self.sizes[number],
                etag=f"{number:032x}",
                time=_TIME,
            )
            for number in range(first, last)
        ).encode()

    def select(
        self, prefix: str, delimiter: str, start: str, end: str, limit: int
    ) -> tuple[int, int, list[str], str]:
        """Return the bounds of the objects of a page, its prefixes, and the next page's key."""
        first = bisect_left(self.keys, max(prefix, start))
        stop = bisect_left(self.keys, prefix + chr(0x10FFFF))
        stop = min(stop, bisect_left(self.keys, end)) if end else stop
        if not delimiter:
            last = min(stop, first + limit)
            return first, last, [], self.keys[last] if last < stop else ""
        prefixes: list[str] = []
        last = first
        while last < stop:
            inside = self.keys[last][len(prefix) :]
            if delimiter not in inside:  # in the folders of this benchmark only before any prefix
                if last - first + len(prefixes) == limit:
                    return first, last, prefixes, self.keys[last]
                last += 1
                continue
            if len(prefixes) == limit:
                return first, first, prefixes, self.keys[last]
            prefixes.append(prefix + inside.partition(delimiter)[0] + delimiter)
            last = bisect_left(self.keys, prefixes[-1] + chr(0x10FFFF))
        return first, first if prefixes else last, prefixes, ""


def answer_s3(bucket: Bucket, path: str, query: dict[str, str]) -> tuple[int, bytes]:
    """Return the status and body of a request to S3."""
    key = unquote(path.removeprefix(f"/{BUCKET}").lstrip("/"))
    if key:
        return (200 if key in bucket.keys else 404), b""
    limit = min(_PAGE, int(query.get("max-keys") or _PAGE))
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    start = query.get("continuation-token") or query.get("start-after", "")
    first, last, prefixes, token = bucket.select(prefix, delimiter, start, "", limit)
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><MaxKeys>{limit}</MaxKeys>"
        f"<EncodingType>url</EncodingType><KeyCount>{last - first + len(prefixes)}</KeyCount>"
        f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>".encode(),
        f"<NextContinuationToken>{token}</NextContinuationToken>".encode() if token else b"",
        bucket.entries(_XML, "", first, last),
        *(
            f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>".encode()
            for each in prefixes
        ),
        b"</ListBucketResult>",
    ]
    return 200, b"".join(parts)


def answer_google(bucket: Bucket, path: str, query: dict[str, str]) -> tuple[int, bytes]:
    """Return the status and body of a request to the JSON API of Google Cloud Storage."""
    inside = path.removeprefix(f"/storage/v1/b/{BUCKET}")
    if not inside:
        return 200, json.dumps({"kind": "storage#bucket", "name": BUCKET}).encode()
    if inside.startswith("/o/"):
        return 404, b'{"error": {"code": 404, "message": "Not Found"}}'
    limit = min(_PAGE, int(query.get("maxResults") or _PAGE))
    start = query.get("pageToken") or query.get("startOffset", "")
    first, last, prefixes, token = bucket.select(
        query.get("prefix", ""),
        query.get("delimiter", ""),
        start,
        query.get("endOffset", ""),
        limit,
    )
    template = _SHORT_JSON if "fields" in query else _JSON
    parts = [b'{"kind": "storage#objects"']
    if token:
        parts.append(b', "nextPageToken": ' + json.dumps(token).encode())
    if prefixes:
        parts.append(b', "prefixes": ' + json.dumps(prefixes).encode())
    if last > first:
        parts += [b', "items": [', bucket.entries(template, ",", first, last), b"]"]
    return 200, b"".join([*parts, b"}"])


class Connection(asyncio.Protocol):
    """One connection with one request after the other, none of which has a body."""

    def __init__(self, bucket: Bucket, latency: float) -> None:
        self.bucket, self.latency, self.received = bucket, latency, b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for answers."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            parts = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            google = parts.path.startswith("/storage/v1/")
            answer: Callable[[Bucket, str, dict[str, str]], tuple[int, bytes]]
            answer = answer_google if google else answer_s3
            status, body = answer(self.bucket, parts.path, query)
            kind = "application/json" if google else "application/xml"
            headers = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
            text = headers.encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body)
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, text)


def templates(store: str) -> Iterator[tuple[str, str]]:
    """Yield the templates of a store's entries, and what separates them."""
    if store == "s3":
        yield _XML, ""
    else:
        yield _JSON, ","
        yield _SHORT_JSON, ","


async def serve(bucket: Bucket, latency: float) -> None:
    """Serve a bucket until the process is ended; print the address."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(bucket, latency), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve objects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--store", choices=["s3", "gs"], default="s3")
    parser.add_argument("--flat", action="store_true", help="all objects in one folder")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    bucket = Bucket(options.objects, flat=options.flat)
    for template, separator in templates(options.store):
        bucket.prepare(template, separator)
    asyncio.run(serve(bucket, options.latency))


if __name__ == "__main__":
    main()
