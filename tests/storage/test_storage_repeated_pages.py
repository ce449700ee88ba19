"""Listings of stores that repeat a page of their objects end with an error."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest

from hyperplane.errors import RequestError
from hyperplane.objectstore.listing import find_files

pytestmark = pytest.mark.service

#: Pages after which a listing that goes on has missed that they are the same.
MOST_PAGES = 50
#: Keys of a page, and prefixes, by the kind of store.
PAGES = {"objects": (["day/a", "day/b"], []), "folders": ([], ["day/x/", "day/y/"])}


class RepeatingServer(BaseHTTPRequestHandler):
    """S3 and Google Cloud Storage, in which each page of a listing is the first one."""

    def do_GET(self):
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        is_google = self.path.startswith("/storage/v1/")
        token = self.server.next_token(query)
        keys, prefixes = self.server.page
        if "/o/" in self.path:
            self.send(404, b"{}")
        elif is_google:
            page = {
                "kind": "storage#objects",
                "items": [{"name": key, "size": "1", "bucket": "bucket"} for key in keys],
                "prefixes": prefixes,
                **({"nextPageToken": token} if token else {}),
            }
            self.send(200, json.dumps(page).encode())
        else:
            self.send(200, self.describe(keys, prefixes, token).encode())

    def describe(self, keys, prefixes, token):
        contents = [f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys]
        common = [f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in prefixes]
        end = "<IsTruncated>false</IsTruncated>"
        if token:
            next_token = f"<NextContinuationToken>{token}</NextContinuationToken>"
            end = f"<IsTruncated>true</IsTruncated>{next_token}"
        return "".join(["<ListBucketResult>", *contents, *common, end, "</ListBucketResult>"])

    def do_HEAD(self):
        self.send(404, b"")

    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    def log_message(self, *args):
        pass


@pytest.fixture(params=["same token", "other tokens"])
def server(request):
    numbers = count()
    is_same = request.param == "same token"

    def next_token(query):
        if not {"continuation-token", "pageToken"} & {*query}:
            return "first"
        if next(server.pages) > MOST_PAGES:  # so that a failing test ends
            return ""
        return "first" if is_same else f"token-{next(numbers)}"

    with ThreadingHTTPServer(("127.0.0.1", 0), RepeatingServer) as server:
        server.next_token, server.pages, server.page = next_token, count(), PAGES["objects"]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def options_of(protocol, server):
    address = f"http://127.0.0.1:{server.server_port}"
    if protocol == "s3":
        return {"key": "a", "secret": "b", "endpoint_url": address}
    return {"token": "anon", "project": "x", "endpoint_url": address}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_a_store_that_repeats_a_page_is_an_error(protocol, server):
    for page, name in [("objects", "day"), ("folders", "day/*"), ("objects", "day/**")]:
        server.page, server.pages = PAGES[page], count()
        with pytest.raises(RequestError, match=r"a page of its objects with 'day/.* twice\)"):
            find_files(f"{protocol}://bucket/{name}", options_of(protocol, server))
        assert next(server.pages) < MOST_PAGES
