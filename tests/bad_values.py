"""Bad values for public functions, and the check of calls with some of them."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import decimal
import faulthandler
import inspect
import json
import math
import os
import random
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.base import is_dask_collection
from dask.delayed import Delayed
from sklearn.linear_model import LinearRegression

import hyperplane
import hyperplane.ml
from hyperplane.clusters import planning
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.clusters.ray.slurm.engine import SlurmRayEngine
from hyperplane.clusters.ray.ssh.engine import SshRayEngine
from hyperplane.clusters.spark.local.engine import LocalSparkEngine
from hyperplane.clusters.spark.slurm.engine import SlurmSparkEngine
from hyperplane.clusters.spark.ssh.engine import SshSparkEngine
from hyperplane.errors import HyperplaneError
from hyperplane.jobs import slack, supervisor_client

#: Maximum seconds of a call; an idle machine needs at most five.
LIMIT = 30.0
#: Maximum number of partitions of a lazy result that is computed.
FEW = 50


class Odd:
    """An object of a type that no function accepts."""

    def __repr__(self) -> str:
        return "<odd>"


NUMBERS = [
    -1, 0, 1, 2, 3, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e30, 1e308, math.nan,
    math.inf, -math.inf, True, False, 1j, decimal.Decimal("1.5"), decimal.Decimal("nan"),
    np.int64(1), np.uint64(2**64 - 1), np.float16(0.5), np.float64("nan"), np.bool_(True),
    np.array(1), np.array([1, 2]), np.datetime64("NaT"), pd.NA, pd.NaT, pd.Timedelta("1s"),
]  # fmt: skip
TEXTS = [
    "", " ", "\0", "a\0b", "\ud800", "\n", "１", "٣", "nan", "-1", "1e999", "1" * 5000, "x" * 5000,
    "../..", "/", "~", ".", "//", "/dev/null", "/proc/self/mem", "file:///", "file://x\0",
    "http://127.0.0.1:9/x", "s3:", "nope://x", "::", "a::b", "*", "[", "{", "{}", "{x", "%s",
    "16_16", "a", "b", "medium", "parquet", "1s", "1h", "100MB", "local", "' OR 1=1 --",
    "x.parquet", "x.json", "x.yaml", "'", '"', "\\", "🙂", "é", "-", "--help", "None", "true",
    b"", b"1", b"\xff", bytearray(b"x"), memoryview(b"x"),
]  # fmt: skip
OBJECTS: list[Any] = [
    None, [], [None], [[]], ["a", None], (), ("a",), (1, 2), {}, {"a": 1}, {1: 2}, {None: None},
    set(), {"a"}, frozenset(), range(3), Odd(), Odd, object, Ellipsis, len, lambda: 1, print,
    dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.timedelta(1), Path(), Path("/proc/nowhere/x"),
    pd.DataFrame(), pd.Series([1]), pd.DataFrame({"a": [1]}), np.zeros((0, 3)), slice(None),
    iter(()), {"a": {"b": []}}, [1, "a"], ["a", "a"], ["a", "b"], threading.Lock(), type,
]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A public function and the arguments of a valid call.

    Parameters
    ----------
    function : callable
        The function to call.
    good : mapping
        Arguments of a valid call. The value of a :class:`FreshArgument` is created for each call.
    more : iterable of str
        Arguments that the signature does not name.
    skipped : iterable of str
        Arguments that are not replaced: those that let a call wait, and functions of the caller.
    of : callable, optional
        The public function, when ``function`` wraps it.
    """

    function: Callable[..., Any]
    good: Mapping[str, Any]
    more: Iterable[str] = ()
    skipped: Iterable[str] = ()
    of: Callable[..., Any] | None = None

    @property
    def public(self) -> Callable[..., Any]:
        """The public function that is tested."""
        return self.of or self.function

    def names(self) -> list[str]:
        """Return the names of arguments that may be replaced."""
        own = [
            each.name
            for each in inspect.signature(self.public).parameters.values()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name != "self"
        ]
        return [name for name in dict.fromkeys([*own, *self.more]) if name not in self.skipped]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a valid call."""
        arguments = {
            name: value.make() if isinstance(value, FreshArgument) else value
            for name, value in self.good.items()
        }
        return copy.copy(arguments)

    def draw_arguments(self, draw: random.Random) -> dict[str, Any]:
        """Return arguments of which some are bad."""
        arguments, names = self.arguments(), self.names()
        for name in draw.sample(names, min(len(names), draw.choice((1, 1, 1, 2, 3)))):
            arguments[name] = draw.choice(draw.choice((NUMBERS, TEXTS, OBJECTS)))
        return arguments

    def answer(self, arguments: Mapping[str, Any]) -> Any:
        """Return the result of the call, awaited, and computed if it is lazy and small."""
        result = self.function(**arguments)
        if inspect.iscoroutine(result):
            return asyncio.run(result)
        if any(map(callable, arguments.values())):
            return result  # computing it could raise errors of these functions
        if isinstance(result, Delayed) or (
            is_dask_collection(result) and getattr(result, "npartitions", FEW + 1) <= FEW
        ):
            return result.compute()
        return result


@dataclass(frozen=True)
class FreshArgument:
    """A valid argument that is created for each call."""

    make: Callable[[], Any]


def shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={repr(value)[:100]}" for key, value in arguments.items())


def check(name: str, call: Call, times: int) -> None:
    """Fail unless each call with bad values raises a hyperplane error or returns a result."""
    draw = random.Random(f"{name} {os.environ.get('HYPERPLANE_TEST_SEED', '')}")
    failures = []
    for _ in range(times):
        arguments = call.draw_arguments(draw)
        fault = fault_of(call, arguments)
        if fault:
            failures.append(f"{name}({shown(arguments)}) {fault}")
    assert not failures, f"{len(failures)} calls\n" + "\n".join(failures[:40])


def fault_of(call: Call, arguments: Mapping[str, Any]) -> str:
    """Return the fault of a call with bad values; empty if there is none."""
    before = files()
    began = time.monotonic()
    faulthandler.dump_traceback_later(5 * LIMIT, exit=False)
    refused, fault = False, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.answer(arguments)
    except HyperplaneError as error:
        str(error)
        refused = True
    except Exception as error:  # noqa: BLE001 - any of these is a fault
        # Python itself refuses unknown names of arguments.
        if "unexpected keyword" not in str(error):
            fault = f"-> {type(error).__name__}: {str(error)[:150]}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    if time.monotonic() - began > LIMIT:
        fault += f" took {time.monotonic() - began:.1f} s"
    if refused and files() != before:
        fault += f" was refused, and changed {sorted(set(files()) ^ set(before))[:3]}"
    return fault


def files() -> dict[str, int]:
    """Return names and sizes of all files in the current folder, except those of jobs."""
    sizes = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if (folder, name) != (".", "jobs")]
        sizes.update({f"{folder}/{name}": Path(folder, name).lstat().st_size for name in names})
        sizes.update({f"{folder}/{name}/": 0 for name in folders})
    return sizes


def state() -> dict[str, Any]:
    """Return the global state of this process."""
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "configuration": json.dumps(dask.config.config, default=repr, sort_keys=True),
        "folder": str(Path.cwd()),
        "mask": mask,
    }


@pytest.fixture(scope="session")
def good_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that valid calls read."""
    folder = tmp_path_factory.mktemp("good")
    table().compute().to_parquet(folder / "x.parquet")
    table().compute().to_csv(folder / "x.csv", index=False)
    (folder / "x.json").write_text('{"a": 1}')
    (folder / "x.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (folder / "x.yaml").write_text(
        "pipeline:\n  name: p\n  tasks:\n  - {name: s, type: command, command: ['true']}\n"
    )
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    hyperplane.save(model, folder / "model.skops")
    hyperplane.ml.ModelRegistry(folder / "models").create("one", model)
    xr.Dataset({"v": ("i", np.arange(3))}).to_zarr(folder / "x.zarr", consolidated=False)
    return folder


@pytest.fixture
def nothing_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good_files: Path
) -> Iterator[None]:
    """Start no cluster and no supervisor, and change to a folder of this test."""
    # Several levels deep, as a bad value may name a parent folder.
    folder = tmp_path / "a" / "b" / "c"
    shutil.copytree(good_files, folder)
    monkeypatch.chdir(folder)

    def stopped(*_: Any, **__: Any) -> Any:
        raise hyperplane.EngineError("test", "nothing is started here")

    real = planning.registry.load

    def loaded(name: Any) -> Any:
        engine = real(name)
        monkeypatch.setattr(type(engine), "start", stopped)
        monkeypatch.setattr(type(engine), "connect", stopped)
        return engine

    monkeypatch.setattr(planning.registry, "load", loaded)
    for engine in (
        *(LocalRayEngine, SshRayEngine, SlurmRayEngine, KubernetesRayEngine),
        *(LocalSparkEngine, SshSparkEngine, SlurmSparkEngine),
    ):
        monkeypatch.setattr(engine, "available", lambda _: Availability(True, "for tests"))
        monkeypatch.setattr(engine, "start_with_lines", stopped)
    monkeypatch.setattr(supervisor_client, "notify_supervisor", lambda *_: None)
    monkeypatch.setattr(slack, "_post", lambda *_: b'{"ok": true}')
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))  # matplotlib writes there as it is imported
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-1")
    monkeypatch.setenv("WEBHOOK_URL", "http://127.0.0.1:9/hook")
    with (
        dask.config.set({"hyperplane.jobs.home": str(folder / "jobs"), "scheduler": "sync"}),
        nothing_changed(),
    ):
        yield


@contextmanager
def nothing_changed() -> Iterator[None]:
    """Fail if the global state of this process has changed."""
    import distributed  # noqa: F401 - it adds its defaults to the configuration

    before = state()
    yield
    after = state()
    assert {key for key in before if before[key] != after[key]} == set()


def table() -> dd.DataFrame:
    days = ["2020-01-01", "2020-01-02", "2020-01-03"]
    columns = {"a": [1, 2, 2], "b": [0.5, 1.5, 2.5], "s": days, "t": pd.to_datetime(days)}
    return dd.from_pandas(pd.DataFrame(columns), npartitions=1)
