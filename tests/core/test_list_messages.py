"""Collections of Python objects are sent as one pickle."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from distributed.protocol import core
from distributed.protocol.serialize import Serialize, Serialized, serialize

import hyperplane
from hyperplane.core.dask_internals.list_messages import has_only_pickles, install_list_messages

#: Frames of a message with one pickle: the message, a header and the pickle.
ONE_PICKLE = 3


@pytest.fixture(autouse=True)
def _installed() -> None:
    install_list_messages()


def send(value: Any) -> tuple[Any, int]:
    """Return what another process receives, and the number of frames."""
    frames = core.dumps({"data": {"key": Serialize(value)}})
    return core.loads(frames)["data"]["key"], len(frames)


@pytest.mark.parametrize(
    "value",
    [
        [f"word {number}" for number in range(1000)],
        tuple(range(1000)),
        set(range(1000)),
        {f"word {number}": number for number in range(1000)},
        {(number, "a"): {"b": [number]} for number in range(1000)},
        [{"name": str(number), "values": [1, 2.5, None]} for number in range(1000)],
        [(number, pd.Timestamp(2026, 1, 1)) for number in range(1000)],
        [lambda: 1] * 1000,
    ],
    ids=["texts", "tuple", "set", "counts", "keys", "records", "pairs", "functions"],
)
def test_a_collection_is_one_pickle(value: Any) -> None:
    received, frames = send(value)
    assert frames == ONE_PICKLE
    assert type(received) is type(value)
    if callable(next(iter(value))):
        assert [each() for each in received] == [1] * 1000
    else:
        assert received == value


def test_installing_again_changes_nothing() -> None:
    before = vars(core)["serialize_and_split"]
    install_list_messages()
    assert vars(core)["serialize_and_split"] is before


def test_equal_objects_of_a_list_remain_one_object() -> None:
    shared = {"a": 1}
    received, _ = send([shared] * 100)
    assert all(each is received[0] for each in received)


def test_arrays_of_a_list_are_not_copied() -> None:
    arrays = [np.arange(10_000) + number for number in range(20)]
    received, frames = send(arrays)
    assert frames > len(arrays)
    assert all((one == other).all() for one, other in zip(received, arrays, strict=True))


@pytest.mark.parametrize(
    "value",
    [
        ["a"] * 20 + [np.zeros(3)],
        [("a", "b")] * 20 + [(np.zeros(3), "b")],
        [[]] * 20 + [[{"a": [np.zeros(3)]}]],
        dict.fromkeys(range(20), b"bytes"),
        ["a"] * 9,
        [Serialize("a")] * 20,
        "a" * 20,
        np.zeros(20),
        pd.Series(["a"] * 20),
    ],
    ids=["array", "pair", "nested", "bytes", "few", "marked", "text", "numbers", "series"],
)
def test_other_values_are_left_to_dask(value: Any) -> None:
    assert not has_only_pickles(value)


def test_marked_elements_are_replaced_as_before() -> None:
    value = [Serialized(*serialize("text")), *map(str, range(20))]
    received, _ = send(value)
    assert received == ["text", *map(str, range(20))]


@pytest.mark.parametrize("on_error", ["message", "raise"])
def test_the_error_of_an_element_that_cannot_be_pickled_is_that_of_dask(on_error: str) -> None:
    with pytest.raises(TypeError, match="Could not serialize object of type lock"):
        core.loads(core.dumps(Serialize([*range(20), threading.Lock()]), on_error=on_error))


def test_elements_of_a_module_that_is_pickled_by_value_are_pickled_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("class Point:\n    x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("only_here")
    cloudpickle.register_pickle_by_value(module)
    try:
        frames = core.dumps(Serialize([module.Point()] * 20))
        texts = core.dumps(Serialize(["a"] * 20))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "only_here")
    monkeypatch.undo()
    assert [each.x for each in core.loads(frames)] == [1] * 20
    assert len(texts) == ONE_PICKLE


def test_lists_in_lists_end() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    assert not has_only_pickles([deep] * 20)
    assert not has_only_pickles([endless] * 20)
    received, frames = send([[[{"a": [number]}]] for number in range(20)])
    assert received == [[[{"a": [number]}]] for number in range(20)]
    assert frames == ONE_PICKLE


def test_a_process_without_it_reads_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = core.dumps({"data": Serialize(["a"] * 100)})
    monkeypatch.setattr(
        core, "serialize_and_split", vars(vars(core)["serialize_and_split"])["hyperplane_original"]
    )
    assert core.loads(frames)["data"] == ["a"] * 100
    assert len(core.dumps({"data": Serialize(["a"] * 100)})) > 100


def count_frames(number: int) -> int:
    """Return the frames of a message with a list, in the process that runs this."""
    return len(core.dumps(Serialize([str(number)] * 100)))


@pytest.mark.cluster
def test_workers_send_lists_as_one_pickle() -> None:
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
    )
    with cluster, client:
        assert client.submit(count_frames, 1).result() == ONE_PICKLE
        assert set(client.run(count_frames, 2).values()) == {ONE_PICKLE}
        (scattered,) = client.scatter([[{"a": 1}] * 50], broadcast=True)
        first, second = client.nthreads()
        moved: list[Any] = [client.submit(list, scattered, workers=[first])]
        moved.append(client.submit(list, moved[0], workers=[second]))
        assert client.gather(moved) == [[{"a": 1}] * 50] * 2
