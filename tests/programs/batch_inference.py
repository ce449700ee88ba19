"""A model that every worker loads once, applied to the partitions of a table."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
from dask import dataframe as dd
from dask.distributed import WorkerPlugin
from numpy import dtype

import hyperplane.notebook_common as nc


class Loads(WorkerPlugin):
    """Puts a file beside each worker when it starts."""

    def __init__(self, name, text):
        self.name, self.text = name, text

    def setup(self, worker):
        Path(worker.local_directory, self.name).write_text(self.text)


Path("scheduler_setup.py").write_text("loaded_models = {'model': (2.0, 'twice')}\n")

processes = 15
cores = 15
memory = 110
client, cluster = nc.initialize_cluster(
    nprocs=processes,
    nthreads=int(cores / processes),
    ram_gb_per_proc=memory / processes,
    cores_per_worker=cores,
    num_workers=1,
    node_selector={},
)
client.register_worker_plugin(Loads("model.txt", "weights"))
client.upload_file("scheduler_setup.py")


def find_model(dask_worker):
    return Path(dask_worker.local_directory, "model.txt").read_text()


assert set(client.run(find_model).values()) == {"weights"}

random = np.random.default_rng(3)
data = pd.DataFrame({"temp": random.random(500), "light": random.random(500) > 0.5})
df = dd.from_pandas(data, npartitions=len(client.has_what()))
assert (len(df), df.npartitions) == (500, len(client.has_what()))


def predict(df: pd.DataFrame, batch_size) -> pd.DataFrame:
    from scheduler_setup import loaded_models

    factor, _ = loaded_models["model"]
    return df.assign(pred=(df["temp"] * factor).round(batch_size))


first = predict.__module__ and df.head(5)
assert first.shape == (5, 2)
meta = {"temp": dtype("float64"), "light": dtype("bool"), "pred": dtype("float64")}
result = df.map_partitions(predict, batch_size=3, meta=meta).compute()
assert result.shape == (500, 3)
assert np.allclose(result["pred"], (data["temp"] * 2).round(3))
assert os.getpid() not in client.run(os.getpid).values()
client.close()
cluster.close()
