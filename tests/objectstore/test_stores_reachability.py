"""The first request fails soon if no server listens, and prints a notice if it is slow."""

from __future__ import annotations

import socket
import threading
import time

import pandas as pd
import pytest
from scale import combinations

import hyperplane
from hyperplane import array, bag, dataframe
from hyperplane.errors import RequestError, StorageError
from hyperplane.objectstore import reachability, server_addresses
from hyperplane.objectstore.listing import find_files, resolve_location

PROXIES = [f"{name}_proxy" for name in ("http", "https", "all", "no")]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Provide a process state without proxy or previous requests."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(reachability, "_answered", set())
    monkeypatch.setattr(reachability, "_refusals", {})
    monkeypatch.setattr(reachability, "_connected", set())
    monkeypatch.setattr(reachability, "_opened_systems", set())
    monkeypatch.setattr(reachability, "_notice_times", {})
    monkeypatch.setattr(reachability, "STARTUP_SECONDS", 0.3)


@pytest.fixture
def closed_port():
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def options_of(protocol, port):
    more = {"s3": {"key": "a", "secret": "sesame"}, "gs": {"token": "anon", "project": "x"}}
    return {"endpoint_url": f"http://127.0.0.1:{port}", **more[protocol]}


CALLS = {
    "load": lambda url, options: hyperplane.load(url, storage_options=options),
    "save": lambda url, options: hyperplane.save(
        pd.DataFrame({"a": [1]}), url, storage_options=options
    ),
    "read": lambda url, options: dataframe.read(url, storage_options=options),
    "records": lambda url, options: bag.read_records(url, format="jsonl", storage_options=options),
    "zarr": lambda url, options: array.open_zarr_many([url], storage_options=options),
}


@pytest.mark.parametrize(("call", "protocol"), combinations(CALLS, ["s3", "gs"]))
def test_a_refused_connection_is_an_error_before_the_library_sends_requests(
    call, protocol, closed_port, monkeypatch, caplog
):
    pytest.importorskip({"s3": "s3fs", "gs": "gcsfs"}[protocol])
    asked = []
    monkeypatch.setattr(time, "sleep", lambda seconds: asked.append(seconds))
    with pytest.raises((StorageError, RequestError)) as caught:
        CALLS[call](f"{protocol}://bucket/x.parquet", options_of(protocol, closed_port))
    message = str(caught.value)
    assert f"nothing answers at 127.0.0.1:{closed_port}: Connection refused" in message
    assert f"{protocol}://bucket/" in message
    assert "sesame" not in message
    assert set(asked) <= {reachability._CONNECT_PAUSE}  # only the retries of the probe
    assert not caplog.records  # the library, which logs its attempts, was not called


def test_size_cluster_reports_a_refused_connection(closed_port):
    with pytest.raises(RequestError, match="nothing answers at 127"):
        hyperplane.size_cluster(f"http://127.0.0.1:{closed_port}/a.csv")


def test_an_unknown_host_name_is_named(monkeypatch):
    pytest.importorskip("s3fs")

    def unknown(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    options = {**options_of("s3", 1), "endpoint_url": "http://no-such-host.invalid:9000"}
    with pytest.raises(StorageError, match=r"the host name no-such-host\.invalid is unknown"):
        hyperplane.load("s3://bucket/x.parquet", storage_options=options)


def test_refusals_of_a_starting_server_are_retried(closed_port, monkeypatch):
    monkeypatch.setattr(reachability, "STARTUP_SECONDS", 30)
    tried = []

    def connect(address, timeout):
        tried.append(address)
        if len(tried) < 3:
            raise ConnectionRefusedError(111, "Connection refused")
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(reachability, "_CONNECT_PAUSE", 0)
    url = f"http://127.0.0.1:{closed_port}/a.csv"
    with reachability.monitor_request(resolve_location(url).store, url):
        pass
    assert tried == [("127.0.0.1", closed_port)] * 3
    with reachability.monitor_request(
        resolve_location(url).store, url
    ):  # it has answered, so it is not probed again
        pass
    assert len(tried) == 3


def test_concurrent_requests_to_a_dead_server_share_one_probe(closed_port, monkeypatch):
    monkeypatch.setattr(reachability, "_REFUSAL_TTL", 60)
    tried = []
    connect = socket.create_connection

    def count(*args):
        tried.append(args)
        return connect(*args)

    monkeypatch.setattr(socket, "create_connection", count)
    monkeypatch.setattr(reachability, "STARTUP_SECONDS", 0)
    with pytest.raises(RequestError, match="50 faults"):
        find_files([f"http://127.0.0.1:{closed_port}/{number}.csv" for number in range(50)])
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("url", "options", "address"),
    [
        ("http://host/a.csv", {}, "host:80"),
        ("https://host:8443/a.csv", {}, "host:8443"),
        ("http://[::1]:80/a.csv", {}, "[::1]:80"),
        ("https://host/a.csv", {"client_kwargs": {"trust_env": True}}, None),
        ("s3://b/a.csv", {"client_kwargs": {"endpoint_url": "http://other:9000"}}, "other:9000"),
        ("s3://b/a.csv", {"endpoint_url": "http://s", "config_kwargs": {"proxies": {"http": "p"}}},
         None),
        ("s3://b/a.csv", {"key": "a", "secret": "b"}, None),  # Amazon's, by bucket and region
        ("gs://b/a.csv", {"token": "anon"}, "storage.googleapis.com:443"),
        ("memory://a.csv", {}, None),
        ("a.csv", {}, None),
    ],
)  # fmt: skip
def test_find_server_address_of_each_protocol(url, options, address, monkeypatch):
    if url.startswith(("s3", "gs")):
        pytest.importorskip({"s3": "s3fs", "gs": "gcsfs"}[url[:2]])
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    found = server_addresses.find_server_address(resolve_location(url, options).store, url)
    assert (found and str(found)) == address


def test_no_server_is_probed_behind_a_proxy(monkeypatch):
    url = "http://inside/a.csv"
    store = resolve_location(url).store
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert server_addresses.find_server_address(store, url) is None
    monkeypatch.setenv("no_proxy", "inside")
    assert str(server_addresses.find_server_address(store, url)) == "inside:80"


def test_a_slow_first_answer_prints_a_notice(monkeypatch, capsys):
    printed = threading.Event()
    notice = reachability._print_notice
    monkeypatch.setattr(reachability, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(reachability, "_print_notice", lambda url: (notice(url), printed.set()))
    monkeypatch.setattr(reachability, "_probe_address", lambda address: None)
    url = "http://me:secret@slow.invalid/a.csv"
    store = resolve_location(url).store
    with reachability.monitor_request(store, url):
        assert printed.wait(30)
    line = "hyperplane: http://slow.invalid/a.csv has not answered within 0 s"
    assert capsys.readouterr().err.startswith(line)
    printed.clear()
    with reachability.monitor_request(store, url):  # it has answered, so later requests may be slow
        assert not printed.wait(0.1)
