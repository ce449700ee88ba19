"""Longest flights of each airport, with plain pandas and with a Dask cluster."""

import warnings
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd

from hyperplane import notebook_common as nc

warnings.filterwarnings("ignore")

TYPES = {"late": "float64", "number": "int64", "miles": "float64", "start": "object"}
FIELDS = ["late", "number", "miles", "start"]


def longest(rows):
    return rows.nlargest(n=3, columns="miles")


files = [f"{year}.csv" for year in range(1987, 1990)]
random = np.random.default_rng(7)
for file in files:
    frame = pd.DataFrame(
        {
            "late": random.normal(size=400),
            "number": random.integers(1, 900, 400),
            "miles": random.permutation(400) + random.random(),
            "start": random.choice(["JFK", "LGA", "EWR"], 400),
            "unused": 0,
        }
    )
    frame.loc[frame.sample(9, random_state=1).index, "late"] = np.nan
    frame.to_csv(file, index=False)

read = [pd.read_csv(file, usecols=FIELDS, dtype=TYPES, encoding="ISO-8859-1") for file in files]
wanted = pd.concat(read).groupby("start").apply(longest)

client, cluster = nc.initialize_cluster(
    nprocs=5,
    nthreads=3,
    ram_gb_per_proc=2.4,
    cores_per_worker=15,
    scheduler_deploy_mode="remote",
    num_workers=2,
)
df = dd.read_csv(files, usecols=FIELDS, dtype=TYPES, encoding="ISO-8859-1")
lazy = df.groupby("start").apply(longest)
found = lazy.compute()
assert found.shape == wanted.shape == (9, 3)
for airport in ("JFK", "LGA", "EWR"):
    assert found.loc[airport]["miles"].to_list() == wanted.loc[airport]["miles"].to_list()

# A table of a database, by index, and parts that a function of the program loads.
from dask.distributed import delayed  # noqa: E402 - Dask no longer has it; a cluster brings it back


@delayed
def load(file):
    return pd.read_csv(file, usecols=["number"])


parts = dd.from_delayed([load(str(Path(file).absolute())) for file in files])
assert len(parts.persist()) == 1200
cluster.close()
