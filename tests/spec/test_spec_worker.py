"""Layout of the worker processes of one node."""

import json

import pytest

from hyperplane.errors import RequestError
from hyperplane.spec.worker import WorkerSpec


def test_totals_are_exact_in_bytes():
    worker = WorkerSpec.from_gb(nprocs=6, nthreads=2, ram_gb_per_proc=2.1, cores_per_worker=12)
    assert worker.ram_per_proc == 2_100_000_000
    assert worker.total_ram == 12_600_000_000
    assert worker.total_threads == 12
    assert worker.ram_gb_per_proc == 2.1


def test_to_dict_has_the_names_of_the_arguments():
    worker = WorkerSpec.from_gb(5, 3, 2.4, 15, ngpus=1)
    assert worker.to_dict() == {
        "nprocs": 5,
        "nthreads": 3,
        "ram_gb_per_proc": 2.4,
        "cores_per_worker": 15,
        "ngpus": 1,
    }
    assert WorkerSpec.from_gb(**json.loads(json.dumps(worker.to_dict()))) == worker


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        (WorkerSpec(5, 3, 2_400_000_000, 15), "5 processes x 3 threads x 2.4 GB"),
        (WorkerSpec(1, 1, 500_000_000, 1), "1 process x 1 thread x 0.5 GB"),
        (WorkerSpec(1, 8, 7 * 10**9, 2, 1), "1 process x 8 threads x 7 GB, 1 GPU"),
        (WorkerSpec(2, 8, 7 * 10**9, 2, 4), "2 processes x 8 threads x 7 GB, 4 GPUs"),
    ],
)
def test_the_text_shows_processes_threads_memory_and_gpus(worker, text):
    assert str(worker) == text


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"nprocs": 0}, "a number of at least 1"),
        ({"nthreads": -1}, "a number of at least 1"),
        ({"ram_per_proc": 0}, "a number of at least 1"),
        ({"ngpus": -1}, "a number of at least 0"),
        ({"cores_per_worker": 0}, f"a number more than 0, at most {2**60:,}"),
        ({"cores_per_worker": float("nan")}, f"a number more than 0, at most {2**60:,}"),
    ],
)
def test_a_number_below_its_minimum_is_a_fault(change, allowed):
    good = {"nprocs": 1, "nthreads": 1, "ram_per_proc": 1, "cores_per_worker": 1}
    with pytest.raises(RequestError) as caught:
        WorkerSpec(**{**good, **change})
    [fault] = caught.value.faults
    [(name, value)] = change.items()
    assert (fault.where, fault.asked, fault.allowed) == (name, repr(value), allowed)


def test_all_faults_are_reported_together():
    with pytest.raises(RequestError, match="5 faults"):
        WorkerSpec(0, 0, 0, 0, -1)
