"""Write access to a real object store: the probe is new, and is removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
import servers

import hyperplane

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("patient_checks")]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with servers.s3_options(tmp_path_factory.mktemp("s3")) as found:
        yield found


def _plan() -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, engine="local")


def test_an_output_that_can_be_written_is_left_as_it_was(options: dict[str, Any]) -> None:
    bucket = servers.bucket("s3", options)
    system = fsspec.filesystem("s3", **options)
    system.pipe_file(f"{bucket.url}/out.csv", b"a\n1\n")
    report = hyperplane.preflight(
        _plan(),
        data=f"{bucket.url}/out.csv",
        output=f"{bucket.url}/out.parquet",
        storage_options=options,
    )
    assert (report.faults, report.warnings) == ((), ()), str(report)
    system.invalidate_cache()
    assert [name.rpartition("/")[2] for name in system.find(bucket.url)] == ["out.csv"]


def test_a_bucket_that_does_not_exist(options: dict[str, Any]) -> None:
    report = hyperplane.preflight(
        _plan(), output="s3://no-such-bucket/out.parquet", storage_options=options
    )
    [fault] = report.faults
    assert fault.subject == "output"
    assert "the bucket, folder or file does not exist" in fault.text
    assert "sesame" not in str(report)
