"""Stores at their default endpoints: a hyperplane error without network, and no tracebacks.

The tests replace host name lookup by a function that knows only this machine.
"""

from __future__ import annotations

import http.server
import logging
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from scale import combinations

import hyperplane
from hyperplane import array, bag, dataframe
from hyperplane.asl.items import object_reader
from hyperplane.demo.data import read_with_dask
from hyperplane.errors import RequestError, StorageError
from hyperplane.objectstore import reachability, server_addresses
from hyperplane.objectstore.listing import resolve_location
from hyperplane.objectstore.locations import Store

_VARIABLES = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
    "STORAGE_EMULATOR_HOST", "FSSPEC_GS_ENDPOINT_URL",
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Provide a process state without proxy, credential files, or previous requests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, empty in (
        ("_answered", set()), ("_connected", set()), ("_opened_systems", set()),
        ("_refusals", {}), ("_notice_times", {}), ("STARTUP_SECONDS", 0.3),
    ):  # fmt: skip
        monkeypatch.setattr(reachability, name, empty)


@pytest.fixture
def names(monkeypatch):
    """Return the host names that were looked up; only those of this machine are known."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def unknown(host, *args, **kwargs):
        if host in ("127.0.0.1", "localhost"):
            return look_up(host, *args, **kwargs)
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return asked


@pytest.fixture
def file_systems():
    """Clear fsspec's instance caches after the test."""
    kinds = [fsspec.get_filesystem_class(name) for name in ("s3", "gs")]
    for kind in kinds:
        kind.clear_instance_cache()
    yield
    for kind in kinds:
        kind.clear_instance_cache()


CALLS = {
    "size_cluster": lambda url: hyperplane.size_cluster(url),
    "load": lambda url: hyperplane.load(url),
    "save": lambda url: hyperplane.save(pd.DataFrame({"a": [1]}), url),
    "read": lambda url: dataframe.read(url),
    "read_records": lambda url: bag.read_records(url, format="json"),
    "open_zarr_many": lambda url: array.open_zarr_many([url]),
    "demo": read_with_dask,
    "state machine": lambda url: object_reader(url.rpartition("/")[0])(
        {"Bucket": "bucket", "Key": "x.json"}
    ),
}
HOSTS = {
    "gs": "storage.googleapis.com",
    "s3": "bucket.s3.amazonaws.com",
    "https": "no-such-host.invalid",
}


@pytest.mark.parametrize(("call", "protocol"), combinations(CALLS, ["s3", "https", "gs"]))
def test_without_network_the_error_names_the_only_host_that_was_looked_up(
    call, protocol, names, caplog, monkeypatch, request
):
    if protocol != "https":
        pytest.importorskip({"s3": "s3fs", "gs": "gcsfs"}[protocol])
        request.getfixturevalue("file_systems")
    if (call, protocol) == ("save", "https"):
        return  # rejected earlier, as HTTP is read-only
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    url = f"{protocol}://{'no-such-host.invalid' if protocol == 'https' else 'bucket'}/x.parquet"
    with pytest.raises((StorageError, RequestError)) as caught:
        CALLS[call](url)
    message = str(caught.value)
    assert f"the host name {HOSTS[protocol]} is unknown" in message
    assert "sesame" not in message
    assert set(names) == {HOSTS[protocol]}  # in particular no credential server
    assert waited == []
    assert [one for one in caplog.records if one.exc_info] == []


def _hosts_of(monkeypatch, url, **options):
    """Return the addresses tried for a file; each is refused."""
    tried = []

    def refuse(address):
        tried.append(str(address))
        raise reachability.StoreUnreachable("refused")

    monkeypatch.setattr(reachability, "_probe_address", refuse)
    with pytest.raises(StorageError, match="refused"):
        hyperplane.load(url, storage_options={"skip_instance_cache": True, **options})
    return tried


@pytest.mark.parametrize(
    ("environment", "config", "options", "host"),
    [
        ({"AWS_DEFAULT_REGION": "eu-west-3"}, "", {}, "bucket.s3.eu-west-3.amazonaws.com:443"),
        ({}, "", {"client_kwargs": {"region_name": "cn-north-1"}},
         "bucket.s3.cn-north-1.amazonaws.com.cn:443"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "", {}, "127.0.0.1:1"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:2"},
         "", {}, "127.0.0.1:2"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1",
          "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "", {}, "bucket.s3.amazonaws.com:443"),
        ({}, "[default]\nendpoint_url = http://127.0.0.1:3\n", {}, "127.0.0.1:3"),
        ({"AWS_PROFILE": "mine"}, "[profile mine]\nservices = here\n[services here]\ns3 =\n"
         "  endpoint_url = http://127.0.0.1:4\n", {}, "127.0.0.1:4"),
        ({}, "", {"config_kwargs": {"s3": {"addressing_style": "path"}}}, "s3.amazonaws.com:443"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "",
         {"config_kwargs": {"s3": {"use_dualstack_endpoint": True}}},
         "bucket.s3.dualstack.eu-west-1.amazonaws.com:443"),
    ],
)  # fmt: skip
def test_only_the_host_of_an_s3_request_is_probed(
    environment, config, options, host, monkeypatch, file_systems
):
    pytest.importorskip("s3fs")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(config)
    assert _hosts_of(monkeypatch, "s3://bucket/x.parquet", **options) == [host]


@pytest.mark.parametrize("way", ["environment", "options"])
def test_no_s3_host_is_probed_behind_a_proxy(way, monkeypatch, closed_port, file_systems):
    pytest.importorskip("s3fs")
    proxy, options = f"http://127.0.0.1:{closed_port}", {}
    if way == "environment":
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    else:
        options = {"config_kwargs": {"proxies": {"https": proxy}}}
    tried = []
    monkeypatch.setattr(reachability, "_probe_address", tried.append)
    store = resolve_location(
        "s3://bucket/x.parquet", {**options, "skip_instance_cache": True}
    ).store
    assert server_addresses.has_host_per_request(store) == (way == "environment")
    request = SimpleNamespace(url="https://bucket.s3.amazonaws.com/x.parquet")
    if way == "environment":
        fsspec.asyn.sync(fsspec.asyn.get_loop(), reachability._probe_request_host, request)
    assert tried == []


class OtherSystem(MemoryFileSystem):
    """A file system of another library than s3fs."""

    protocol = ("s3",)
    store: dict[str, object] = {}  # noqa: RUF012 - as the parent has it
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("s3://").strip("/")


def test_another_file_system_registered_for_s3_is_read_and_written(monkeypatch):
    monkeypatch.setitem(_registry, "s3", OtherSystem)
    url, frame = "s3://bucket/x.parquet", pd.DataFrame({"a": [1, 2]})
    hyperplane.save(frame, url)
    assert hyperplane.load(url).equals(frame)
    assert len(dataframe.read(url).compute(scheduler="sync")) == 2
    assert hyperplane.size_cluster(url).nodes == 1


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_host_that_accepted_a_connection_is_probed_once(monkeypatch, file_systems):
    tried = []

    def connect(address, timeout):
        tried.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    request = SimpleNamespace(url="https://bucket.s3.amazonaws.com/x.parquet")
    for _ in range(3):
        fsspec.asyn.sync(fsspec.asyn.get_loop(), reachability._probe_request_host, request)
    assert tried == [("bucket.s3.amazonaws.com", 443)]


def test_endpoints_in_the_configuration_of_fsspec_are_used(monkeypatch, closed_port, file_systems):
    pytest.importorskip("gcsfs")
    endpoint = f"http://127.0.0.1:{closed_port}"
    monkeypatch.setitem(fsspec.config.conf, "gs", {"endpoint_url": endpoint})
    monkeypatch.setitem(fsspec.config.conf, "gcs", {"endpoint_url": endpoint})
    assert (
        str(server_addresses.find_server_address_before_opening("gs://b/a", {}))
        == f"127.0.0.1:{closed_port}"
    )
    detour = {"endpoint_url": endpoint, "session_kwargs": {"trust_env": True}}
    monkeypatch.setitem(fsspec.config.conf, "gs", detour)
    monkeypatch.setitem(fsspec.config.conf, "gcs", detour)
    assert server_addresses.find_server_address_before_opening("gs://b/a", {}) is None


@pytest.mark.parametrize(
    ("system", "address"),
    [
        ({"account_url": "https://acc.blob.core.windows.net"}, "acc.blob.core.windows.net:443"),
        ({"account_url": "https://acc.blob.core.windows.net",
          "service_client": SimpleNamespace(url="http://127.0.0.1:10000/acc?sig=1")},
         "127.0.0.1:10000"),
        ({}, None),
    ],
)  # fmt: skip
def test_the_address_of_an_azure_store_is_that_of_its_client(system, address):
    store = Store("abfs", "abfs://box/a.csv", {})
    store.__dict__["system"] = SimpleNamespace(**system)
    found = server_addresses.find_server_address(store, "abfs://box/a.csv")
    assert (found and str(found)) == address


class _Server(http.server.BaseHTTPRequestHandler):
    """Answer with the status in the path, once the test allows it."""

    def do_GET(self):
        self.server.may_answer.wait(60)
        body = b"a,b\n1,2\n"
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    served.may_answer = threading.Event()
    thread = threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield served
    served.may_answer.set()
    served.shutdown()
    served.server_close()
    thread.join(30)


def test_a_slow_store_prints_one_notice_and_is_read(server, monkeypatch, capsys):
    server.may_answer.clear()
    monkeypatch.setattr(reachability, "NOTICE_SECONDS", 0.05)
    notice = reachability._print_notice
    threads = []

    def print_and_answer(url):
        threads.append(url)
        notice(url)
        if len(threads) > 1:
            server.may_answer.set()

    monkeypatch.setattr(reachability, "_print_notice", print_and_answer)
    url = f"http://127.0.0.1:{server.server_port}/200"
    frame = dataframe.read([f"{url}/a.csv", f"{url}/b.csv"]).compute()
    assert frame.to_dict("list") == {"a": [1, 1], "b": [2, 2]}
    assert capsys.readouterr().err.count("has not answered within") == 1


@pytest.mark.parametrize("status", [403, 500])
def test_an_http_error_is_not_reported_as_a_missing_file(status, server):
    server.may_answer.set()
    url = f"http://127.0.0.1:{server.server_port}/{status}/a.csv"
    with pytest.raises(RequestError, match=rf"a readable URL \(.*{status}") as caught:
        dataframe.read(url)
    assert "none were found" not in str(caught.value)
    with pytest.raises(RequestError, match=f"{status}"):
        hyperplane.size_cluster(url)


def test_http_404_is_reported_as_a_missing_file(server):
    server.may_answer.set()
    with pytest.raises(RequestError, match="none were found"):
        dataframe.read(f"http://127.0.0.1:{server.server_port}/404/a.csv")


def test_a_slow_search_for_credentials_prints_a_notice(monkeypatch, capsys):
    printed = threading.Event()
    notice = reachability._print_notice
    monkeypatch.setattr(reachability, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(reachability, "_print_notice", lambda url: (notice(url), printed.set()))
    monkeypatch.setattr(reachability, "_probe_address", lambda address: None)
    with reachability.monitor_open("gs://bucket/x.parquet", {}):
        assert printed.wait(30)
    assert "hyperplane: gs://bucket/x.parquet has not answered" in capsys.readouterr().err


def _log_a_fault(name):
    try:
        raise ValueError("inside")
    except ValueError:
        logging.getLogger(name).exception("out of retries")


def test_tracebacks_of_libraries_go_to_handlers_and_are_not_printed(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with reachability.monitor_open("https://host/a.csv", {}):
        _log_a_fault("gcsfs")
        _log_a_fault("azure.core.pipeline")
        assert capsys.readouterr().err == ""
        _log_a_fault("program")
        assert "ValueError: inside" in capsys.readouterr().err
        found = []
        handler = logging.Handler()
        handler.emit = found.append
        monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
        _log_a_fault("gcsfs")
        assert [record.name for record in found] == ["gcsfs"]
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    _log_a_fault("gcsfs")
    assert "ValueError: inside" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "is_answer"),
    [
        (FileNotFoundError("a"), True),
        (PermissionError("a"), True),
        (ConnectionResetError("a"), False),
        (TimeoutError("a"), False),
        (ValueError("a"), False),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_is_store_response_of_each_error(error, is_answer, hidden):
    if hidden:
        cause, error = error, FileNotFoundError("a")
        error.__cause__ = cause
    assert reachability.is_store_response(error) == is_answer
