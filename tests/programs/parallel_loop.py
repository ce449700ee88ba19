"""A loop over many things on all workers, first as a bag and then as futures."""

import time

from dask import bag as db

from hyperplane import notebook_common as nc


def process_item(item):
    time.sleep(0.01)
    return "done" if item >= 0 else "never"


things = list(range(30))
for thing in things[:3]:
    process_item(thing)

nodes = 2
memory = 12
cores = 15
processes = 15
each = memory / processes
threads = int(cores / processes)
client, cluster = nc.initialize_cluster(
    num_workers=nodes,
    nprocs=processes,
    nthreads=threads,
    ram_gb_per_proc=each,
    cores_per_worker=cores,
)
client.restart()
assert len(client.nthreads()) > 0
bag = db.from_sequence(things, npartitions=len(client.nthreads()))
results = db.map(process_item, bag).compute()
assert (len(results), set(results)) == (30, {"done"})

futures = client.map(process_item, things)
assert client.gather(futures) == ["done"] * 30
client.close()
cluster.close()
