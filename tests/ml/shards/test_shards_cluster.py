"""XShards on worker processes: placement, memory of the client, programs of Orca."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import KilledWorker, futures_of, wait
from scale import FULL, scaled

import hyperplane.orca.data.pandas
from hyperplane import initialize_cluster
from hyperplane.errors import HyperplaneError, RequestError
from hyperplane.ml import XShards
from hyperplane.ml.shards import tasks
from hyperplane.orca import OrcaContext, init_orca_context, stop_orca_context

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client():
    client = init_orca_context(cluster_mode="local", cores=2, memory=scaled("1g", "4g"))
    yield client
    stop_orca_context()


@pytest.fixture(autouse=True)
def use_client(client):
    return


def placement(client, shards):
    holders = client.who_has([futures_of(part)[0] for part in shards.parts])
    return sorted(Counter(worker for where in holders.values() for worker in where).values())


def test_four_shards_on_two_workers_are_two_and_two(client):
    shards = XShards.partition({"x": np.arange(8), "y": np.ones(8)}, num_shards=4)
    assert shards.num_partitions() == 4
    assert placement(client, shards) == [2, 2]
    assert placement(client, shards.transform_shard(lambda shard: shard["x"]).compute()) == [2, 2]
    assert XShards.partition(np.arange(8)).num_partitions() == 2


def test_compute_distributes_shards_evenly(client):
    worker = next(iter(client.nthreads()))
    array = np.arange(8)
    shards = XShards.partition(array, num_shards=4)
    crowded = client.map(
        lambda shard: shard + 0,
        [futures_of(p)[0] for p in shards.parts],
        workers=[worker],
        pure=False,
    )
    wait(crowded)
    crowded = XShards([tasks.as_part(future) for future in crowded])
    assert placement(client, crowded) == [4]
    assert placement(client, crowded.compute()) == [2, 2]
    assert np.concatenate(crowded.collect()).tolist() == array.tolist()


def test_memory_of_the_client_does_not_grow_with_the_data(client):
    size = scaled(60, 1000) * 10**6
    count = scaled(4, 40)
    shards = XShards.partition(np.arange(count), num_shards=count)
    frames = shards.transform_shard(
        lambda n, rows: _make_rows_here(n[0], rows), size // 24 // count
    )
    process = psutil.Process(os.getpid())
    frames.first()
    before = process.memory_info().rss
    doubled = frames.transform_shard(lambda frame: frame.assign(z=frame.x * 2)).compute()
    assert len(doubled) == size // 24 // count * count
    back = XShards.from_dataframe(doubled.to_dataframe())
    assert (
        back["z"].transform_shard(sum_up).collect()
        == doubled["z"].transform_shard(sum_up).collect()
    )
    assert process.memory_info().rss - before < size // 4 + 20 * 10**6


def _make_rows_here(number, rows):
    return pd.DataFrame({"n": np.arange(rows) + number, "x": np.ones(rows), "y": np.zeros(rows)})


def sum_up(values):
    return float(values.sum())


def test_the_context_is_one_cluster(client):
    assert init_orca_context() is client
    assert OrcaContext.get_client() is client
    assert sum(client.nthreads().values()) == 2


def test_errors_of_workers_keep_the_name_of_the_shard(client):
    shards = XShards.partition(np.arange(4), num_shards=4)
    for func, kind in ((lambda n: 1 // (2 - int(n[0])), ZeroDivisionError),):
        with pytest.raises(kind) as caught:
            shards.transform_shard(func).collect()
        assert caught.value.__notes__[0].startswith("in shard 2 of 4, transform_shard")
    with pytest.raises(RequestError, match="Invalid key for this XShards: 'x'"):
        shards["x"].collect()


def test_seven_shards_on_three_workers_are_two_or_three_each():
    options = {"nprocs": 3, "nthreads": 1, "ram_gb_per_proc": 0.4, "local_fit": "exact"}
    started, cluster = initialize_cluster(num_workers=1, **options)
    with started, cluster:
        shards = XShards.partition(np.arange(14), num_shards=7)
        assert placement(started, shards) == [2, 2, 3]
        assert placement(started, shards.transform_shard(np.negative).compute()) == [2, 2, 3]


def test_only_shards_without_a_source_are_lost_with_a_worker():
    client, cluster = initialize_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact"
    )
    with client, cluster:
        sent = XShards.partition(np.arange(8), num_shards=4)
        df = dd.from_pandas(pd.DataFrame({"n": range(8)}), npartitions=4)
        transformed = XShards.from_dataframe(df).transform_shard(lambda frame: frame + 1).compute()
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert transformed.concat_to_pdf()["n"].tolist() == list(range(1, 9))
        with pytest.raises(HyperplaneError, match="shards were lost"):
            sent.collect()
        with pytest.raises(HyperplaneError, match="shards were lost"):
            sent.transform_shard(abs).compute()
        kept = XShards.partition(np.arange(8), num_shards=2)
        if FULL:  # the scheduler gives up after the fourth worker
            ending = XShards.from_dataframe(df).transform_shard(_end_worker)
            with pytest.raises(KilledWorker, match="transform_shard-_end_worker-"):
                ending.collect()
    # The client of the module is the default one again, and does not know these shards.
    with pytest.raises(HyperplaneError, match="shards were lost"):
        kept.collect()


def _end_worker(shard):
    os._exit(1)


def test_shards_of_a_closed_cluster_are_lost(monkeypatch):
    shards = XShards.partition(np.arange(8), num_shards=2)
    monkeypatch.setattr(tasks, "get_active_client", lambda: None)
    for compute in (shards.collect, shards.transform_shard(abs).compute):
        with pytest.raises(HyperplaneError, match="the cluster was closed"):
            compute()


# Programs of Orca with the same steps as published ones, with other names and data.


@pytest.fixture
def sales(tmp_path):
    for number in (1, 2):
        rows = range(number * 7, number * 7 + 7)
        frame = pd.DataFrame({"ID": rows, "sale_price": [x * 100.0 for x in rows]})
        frame["location"] = [f"place {x % 6}" for x in rows]
        frame.to_csv(tmp_path / f"sales{number}.csv", index=False)
    return tmp_path


def test_the_sale_prices_of_two_files(sales):
    shards = hyperplane.orca.data.pandas.read_csv(str(sales))
    assert (shards.num_partitions(), len(shards)) == (2, 14)
    assert len(shards["location"].unique()) == 6
    assert len(shards.partition_by(cols="location", num_partitions=3).collect()) == 3

    def cap(frame, limit):
        frame = frame.copy()
        frame["sale_price"] = frame["sale_price"].clip(upper=limit)
        return frame

    assert shards.transform_shard(cap, 1500.0)["sale_price"].unique().max() == 1500


@pytest.fixture
def pandas_backend():
    OrcaContext.pandas_read_backend = "pandas"
    yield
    OrcaContext.pandas_read_backend = "spark"


def test_a_table_of_passengers_becomes_features_and_labels(tmp_path, pandas_backend):
    table = pd.DataFrame(
        {
            "id": range(40),
            "age": [20.0, None, 35, 50] * 10,
            "sex": ["f", "m"] * 20,
            "survived": [1, 0] * 20,
        }
    )
    table.to_csv(tmp_path / "people.csv", index=False)
    shards = hyperplane.orca.data.pandas.read_csv(tmp_path / "people.csv").repartition(4)

    def clean(frame):
        frame = frame.drop(columns=["id"]).fillna({"age": 30})
        return frame.assign(sex=frame["sex"].map({"f": 0, "m": 1}))

    shards = shards.transform_shard(clean)
    assert shards.group_by("sex", {"survived": "mean"}).sort_values("sex").concat_to_pdf()[
        "mean(survived)"
    ].tolist() == [1, 0]
    ready = shards.assembleFeatureLabelCols(["age", "sex"], ["survived"]).cache()
    assert ready.first()["x"].shape == (10, 2)
    assert ready["y"].to_array().mean().compute() == 0.5


def test_twenty_images_with_labels():
    images = XShards.partition([np.zeros((20, 3, 8, 8)), np.arange(20)], num_shards=20)

    def to_dict(data):
        return {"x": data[0], "y": data[1]}

    found = images.transform_shard(to_dict).repartition(2).collect()
    assert [shard["x"].shape[0] for shard in found] == [10, 10]
    assert found[1]["y"].tolist() == list(range(10, 20))


@pytest.mark.parametrize(
    "derive",
    [
        lambda shards: shards.repartition(1),
        lambda shards: XShards.from_array(shards.to_array() + 0),
        lambda shards: XShards.from_bag(shards.to_bag()),
        lambda shards: XShards.from_dataframe(shards.transform_shard(pd.DataFrame).to_dataframe()),
        lambda shards: shards.zip(shards).split()[0],
    ],
    ids=["repartition", "array", "bag", "dataframe", "split"],
)
def test_shards_keep_those_that_they_are_made_from(client, derive):
    derived = derive(XShards.partition(np.arange(4), num_shards=2))
    gc.collect()
    # The scheduler has released keys without references when it has answered a later request.
    assert client.submit(int, 1, pure=False).result() == 1
    assert np.ravel(np.concatenate(derived.collect())).tolist() == [0, 1, 2, 3]
