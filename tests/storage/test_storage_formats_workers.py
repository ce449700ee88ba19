"""Errors in a part keep all their fields on the way from the worker to the caller."""

from __future__ import annotations

import dask.bag as db
import pytest

import hyperplane
from hyperplane.errors import ReadError, WrongType


@pytest.mark.cluster
def test_errors_in_parts_written_by_workers_have_all_fields(tmp_path):
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    try:
        items = [{"n": n, "text": f"ü{n}"} for n in range(20)]
        for form in ("avro", "parquet", "jsonl", "orc"):
            bag = db.from_sequence(items, npartitions=4)
            assert hyperplane.save(bag, tmp_path / form, format=form).rows == 20
            assert hyperplane.load(tmp_path / form).compute() == items
            odd = db.from_sequence([{"n": {1}, "text": ""}], npartitions=1)
            with pytest.raises(WrongType, match="item 0") as caught:
                hyperplane.save(odd, tmp_path / "odd", format=form)
            assert caught.value.where == "item 0"
        part = max((tmp_path / "avro").iterdir())
        part.write_bytes(part.read_bytes().replace(b"row", b"raw"))
        with pytest.raises(ReadError, match="damaged"):
            hyperplane.load(tmp_path / "avro").compute()
    finally:
        client.close()
        cluster.close()
