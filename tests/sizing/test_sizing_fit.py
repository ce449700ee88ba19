"""Layouts of worker processes on nodes and machines."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.core.units import gb_to_bytes
from hyperplane.errors import DoesNotFit, RequestError, UnknownPool
from hyperplane.sizing.fit import (
    balanced_layout,
    check_fits,
    fits,
    propose_worker,
    smallest_pool,
)
from hyperplane.sizing.machine_fit import MIN_RAM, fit_machine
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

# Published pool -> processes, threads, MB of each process.
LAYOUTS = {
    "4_32": (1, 3, 7000),
    "8_8": (3, 2, 1666),
    "8_16": (3, 2, 4000),
    "8_64": (3, 2, 19_333),
    "16_16": (5, 3, 2400),
    "16_32": (5, 3, 5400),
    "16_128": (5, 3, 22_000),
    "32_32": (7, 4, 3857),
    "96_768": (13, 7, 51_923),
}


def _pool(cores, ram_gb, gpus=0, name="p"):
    return PoolSpec(
        name=name,
        cores=cores,
        ram_gb=ram_gb,
        allocatable_cores=cores,
        allocatable_ram_gb=ram_gb,
        gpus=gpus,
    )


@pytest.mark.parametrize(("pool", "layout"), LAYOUTS.items())
def test_the_proposed_layout_of_every_published_pool(pool, layout):
    processes, threads, megabytes = layout
    assert hyperplane.fit_workers(pool) == WorkerSpec(
        processes, threads, megabytes * 10**6, processes * threads, 0
    )


class TestBalancedLayout:
    @pytest.mark.parametrize(
        ("cores", "layout"),
        [
            (1, (1, 1)),
            (2, (1, 2)),
            (3, (1, 3)),
            (4, (2, 2)),
            (5, (2, 2)),
            (7, (3, 2)),
            (8, (4, 2)),
            (15, (5, 3)),
            (16, (4, 4)),
            (28, (7, 4)),
            (64, (8, 8)),
            (94, (13, 7)),
            (96, (12, 8)),
        ],
    )
    def test_layouts_of_common_core_counts(self, cores, layout):
        assert balanced_layout(cores) == layout

    @settings(max_examples=scaled(60, 300))
    @given(st.integers(4, 512))
    def test_stays_within_the_cores_and_wastes_few(self, cores):
        processes, threads = balanced_layout(cores)
        used = processes * threads
        assert 1 <= processes / threads <= 2
        assert used <= cores
        # Of five cores one is idle, which is the largest part.
        assert used >= 0.8 * cores
        # No larger number of cores divides as evenly.
        for more in range(used + 1, cores + 1):
            assert not any(
                more % threads == 0 and threads <= more // threads <= 2 * threads
                for threads in range(1, more + 1)
            )

    def test_equals_the_layout_of_dask_if_that_is_balanced(self):
        from distributed.deploy.utils import nprocesses_nthreads

        agreed = 0
        for cores in range(4, 513):
            processes, threads = nprocesses_nthreads(cores)
            if 1 <= processes / threads <= 2:
                assert balanced_layout(cores) == (processes, threads)
                agreed += 1
        assert agreed > 100

    @given(st.integers(1, 64), st.integers(1, 64))
    def test_few_cores_go_to_one_process(self, cores, single):
        processes, threads = balanced_layout(cores, single)
        if cores <= single:
            assert (processes, threads) == (1, cores)
        elif cores > 3:
            assert processes > 1


def _odd(low, high):
    """Numbers as in YAML files, and any other float."""
    scale = 1000
    written = st.integers(int(low * scale), int(high * scale)).map(lambda n: n / scale)
    return written | st.floats(low, high)


@st.composite
def pool_specs(draw):
    cores, ram = draw(_odd(1, 200)), draw(_odd(0.05, 2000))
    return PoolSpec(
        name="any",
        cores=cores,
        ram_gb=ram,
        allocatable_cores=draw(_odd(1, cores) if cores > 1 else st.just(cores)),
        allocatable_ram_gb=draw(st.floats(0.01, ram) | st.just(ram)),
    )


class TestProposeWorker:
    @given(pool_specs())
    def test_a_pool_alone_always_has_a_layout_that_fits_to_the_byte(self, pool):
        worker = propose_worker(pool)
        assert worker.total_threads <= pool.allocatable_cores
        assert worker.cores_per_worker == worker.total_threads
        assert worker.total_ram <= pool.allocatable_ram
        # At most one step of each process is unused.
        assert pool.allocatable_ram - worker.total_ram <= worker.nprocs * 10**6

    @settings(max_examples=scaled(60, 300))
    @given(
        pool_specs(),
        st.none() | st.integers(1, 64),
        st.none() | st.integers(1, 64),
        st.none() | _odd(0.01, 300),
    )
    def test_what_is_given_is_kept_and_fits_or_is_refused(self, pool, nprocs, nthreads, ram):
        try:
            worker = propose_worker(pool, nprocs=nprocs, nthreads=nthreads, ram_gb_per_proc=ram)
        except DoesNotFit:
            # The values did not fit, or one process of them did.
            cores, gigabytes = pool.whole_cores, Fraction(pool.allocatable_ram, 10**9)
            assert (nprocs or 1) * (nthreads or 1) > cores or (
                ram is not None and (nprocs or 1) * Fraction(ram) > gigabytes
            )
            return
        assert nprocs in (None, worker.nprocs)
        assert nthreads in (None, worker.nthreads)
        assert worker.total_threads <= pool.allocatable_cores
        assert worker.cores_per_worker <= pool.allocatable_cores
        if ram is None:
            assert worker.total_ram <= pool.allocatable_ram
        else:
            assert worker.ram_per_proc == gb_to_bytes(ram)
            # Sizes are rounded to a byte, so the sum may exceed the limit by a byte per process.
            assert worker.total_ram <= pool.allocatable_ram + worker.nprocs

    @pytest.mark.parametrize(
        ("pool", "arguments", "layout"),
        [
            ("16_16", {"nprocs": 3}, (3, 5, 4000)),
            ("16_16", {"nprocs": 15}, (15, 1, 800)),
            ("16_16", {"nprocs": 4}, (4, 3, 3000)),
            ("16_16", {"nthreads": 5}, (3, 5, 4000)),
            ("16_16", {"nthreads": 15}, (1, 15, 12_000)),
            ("16_16", {"nprocs": 2, "nthreads": 2}, (2, 2, 6000)),
            ("16_16", {"ram_gb_per_proc": 2.4}, (5, 3, 2400)),
            ("16_16", {"ram_gb_per_proc": 1}, (5, 3, 1000)),
            ("16_16", {"ram_gb_per_proc": 6}, (2, 7, 6000)),
            ("16_16", {"ram_gb_per_proc": 12}, (1, 15, 12_000)),
            ("16_16", {"nthreads": 1, "ram_gb_per_proc": 0.8}, (15, 1, 800)),
            ("16_16", {"nprocs": 15, "ram_gb_per_proc": 12 / 15}, (15, 1, 800)),
        ],
    )
    def test_given_values_are_part_of_the_layout(self, pool, arguments, layout):
        worker = hyperplane.fit_workers(pool, **arguments)
        assert (worker.nprocs, worker.nthreads, worker.ram_per_proc // 10**6) == layout

    def test_memory_per_process_rounded_up_does_not_reduce_the_processes(self):
        worker = hyperplane.fit_workers("16_128", ram_gb_per_proc=110 / 3)
        assert (worker.nprocs, worker.ram_per_proc) == (3, 36_666_666_667)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"nprocs": 16},
            {"nthreads": 16},
            {"nprocs": 4, "nthreads": 4},
            {"ram_gb_per_proc": 12.1},
            {"nprocs": 15, "ram_gb_per_proc": 2.4},
            {"nprocs": 15, "nthreads": 1, "ram_gb_per_proc": 0.801},
        ],
    )
    def test_values_that_exceed_the_pool_are_refused(self, arguments):
        with pytest.raises(DoesNotFit) as caught:
            hyperplane.fit_workers("hyperplane-med", **arguments)
        assert caught.value.pool == "16_16"

    @pytest.mark.parametrize(
        ("arguments", "asked"),
        [
            ({"nprocs": 0}, "0"),
            ({"nprocs": -1}, "-1"),
            ({"nprocs": 2.5}, "2.5"),
            ({"nprocs": True}, "True"),
            ({"nprocs": "2"}, "'2'"),
            ({"nthreads": 0}, "0"),
            ({"nthreads": 1.0}, "1.0"),
            ({"ram_gb_per_proc": 0}, "0"),
            ({"ram_gb_per_proc": -1}, "-1"),
            ({"ram_gb_per_proc": float("nan")}, "nan"),
            ({"ram_gb_per_proc": float("inf")}, "inf"),
            ({"ram_gb_per_proc": "2GB"}, "'2GB'"),
            ({"ram_gb_per_proc": True}, "True"),
        ],
    )
    def test_invalid_numbers_are_faults(self, arguments, asked):
        with pytest.raises(RequestError) as caught:
            hyperplane.fit_workers("16_16", **arguments)
        [fault] = caught.value.faults
        assert [fault.where] == list(arguments)
        assert fault.asked == asked

    def test_all_faults_are_reported_together(self):
        with pytest.raises(RequestError, match="3 faults"):
            hyperplane.fit_workers("16_16", nprocs=0, nthreads=0, ram_gb_per_proc=0)

    def test_numbers_of_numpy_become_numbers_of_python(self):
        worker = hyperplane.fit_workers(
            "16_16", nprocs=np.int64(3), ram_gb_per_proc=np.float32(0.5)
        )
        assert {type(value) for value in worker.to_dict().values()} == {int, float}

    def test_an_unknown_pool_is_an_error(self):
        with pytest.raises(UnknownPool):
            hyperplane.fit_workers("17_17")

    def test_the_layout_has_the_gpus_of_the_pool(self):
        assert propose_worker(_pool(8, 32, gpus=2)).ngpus == 2


class TestFits:
    @pytest.mark.parametrize(
        ("pool", "worker"),
        [
            ("16_16", WorkerSpec.from_gb(15, 1, 0.7, 15)),
            ("16_16", WorkerSpec.from_gb(5, 3, 2.4, 15)),
            ("16_16", WorkerSpec.from_gb(15, 1, 12 / 15, 15)),
            ("16_128", WorkerSpec.from_gb(15, 1, 110 / 15, 15)),
            ("16_128", WorkerSpec.from_gb(3, 5, 110 / 3, 15)),
            ("8_8", WorkerSpec.from_gb(3, 2, 5 / 3, 7)),
            ("4_32", WorkerSpec.from_gb(1, 3, 7, 3.5)),
        ],
    )
    def test_a_layout_at_the_limit_fits(self, pool, worker):
        assert fits(worker, hyperplane.get_pool(pool))

    def test_rounding_of_decimal_sums_does_not_matter(self):
        assert not 6 * 2.1 <= 12.6
        assert fits(WorkerSpec.from_gb(6, 1, 2.1, 6), _pool(6, 12.6))

    @given(st.integers(1, 200), _odd(0.1, 1000))
    def test_equal_shares_of_any_pool_fit(self, processes, ram):
        worker = WorkerSpec.from_gb(processes, 1, ram / processes, processes)
        assert fits(worker, _pool(processes, ram))

    @pytest.mark.parametrize(
        ("pool", "worker"),
        [
            ("16_16", WorkerSpec.from_gb(5, 3, 2.401, 15)),
            ("16_16", WorkerSpec.from_gb(15, 1, 0.7, 15.1)),
            ("16_16", WorkerSpec.from_gb(16, 1, 0.1, 15)),
            ("16_16", WorkerSpec(1, 1, 12_000_000_002, 1)),
            ("4_32", WorkerSpec.from_gb(1, 4, 7, 3.5)),
            ("16_16", WorkerSpec.from_gb(1, 1, 1, 1, ngpus=1)),
        ],
    )
    def test_a_layout_above_the_limit_does_not_fit(self, pool, worker):
        assert not fits(worker, hyperplane.get_pool(pool))

    def test_threads_beside_a_gpu_do_not_count_as_cores(self):
        pool = _pool(2, 8, gpus=1)
        assert fits(WorkerSpec.from_gb(1, 8, 7, 2, ngpus=1), pool)
        assert not fits(WorkerSpec.from_gb(1, 8, 7, 2), pool)
        assert not fits(WorkerSpec.from_gb(1, 8, 7, 2, ngpus=2), pool)

    def test_the_error_has_the_layout_the_limit_and_advice(self):
        pool = hyperplane.get_pool("16_16")
        check_fits(propose_worker(pool), pool)
        with pytest.raises(DoesNotFit) as caught:
            check_fits(WorkerSpec.from_gb(15, 1, 2.4, 15), pool)
        error = caught.value
        assert error.pool == "16_16"
        assert error.asked == "15 processes x 1 thread x 2.4 GB, 15 cores (36 GB)"
        assert error.allowed == "at most 15 cores and 12 GB on a node of pool 16_16"
        [fault] = error.faults
        assert fault.where == "worker"
        assert "5 processes x 3 threads would fit" in fault.advice
        assert "hyperplane.fit_workers('16_16')" in fault.advice

    def test_the_error_names_gpus_if_they_were_requested(self):
        with pytest.raises(DoesNotFit, match="12 GB, 0 GPUs on a node of pool 16_16"):
            check_fits(WorkerSpec.from_gb(1, 1, 1, 1, 1), hyperplane.get_pool("16_16"))


class TestClosestPool:
    @pytest.mark.parametrize(
        ("cores", "ram_gb", "pool"),
        [
            # Every published call.
            (15, 15 * 0.7, "16_16"),
            (15, 5 * 2.4, "16_16"),
            (15, 3 * 4, "16_16"),
            (15, 15 * (12 / 15), "16_16"),
            (15, 15 * (110 / 15), "16_128"),
            (15, 12, "16_16"),
            (15, 110, "16_128"),
            (4, 4, "8_8"),
            # Every pool at its limit, except two that have a better pool of the same cores.
            (3.5, 7, "4_32"),
            (7, 5, "8_8"),
            (7.5, 12, "8_16"),
            (7.5, 58, "8_64"),
            (15, 27, "16_32"),
            (28, 27, "32_32"),
            (94, 675, "96_768"),
            # And slightly above it.
            (3.6, 5, "8_8"),
            (7.1, 5, "8_16"),
            (7, 5.1, "8_16"),
            (1, 12.1, "8_64"),
            (7.6, 1, "16_16"),
            (15, 12.1, "16_32"),
            (15, 27.1, "16_128"),
            (15.1, 1, "32_32"),
            (1, 110.1, "96_768"),
            (28.1, 1, "96_768"),
            (0.5, 0.5, "4_32"),
        ],
    )
    @pytest.mark.usefixtures("published_pools")
    def test_returns_the_smallest_sufficient_pool(self, cores, ram_gb, pool):
        assert hyperplane.closest_pool(cores, ram_gb).name == pool

    @given(_odd(0, 94), _odd(0, 675))
    def test_gives_enough_and_no_smaller_one_does(self, cores, ram_gb):
        closest = hyperplane.closest_pool(cores, ram_gb)
        assert closest.allocatable_cores >= cores - 1e-6
        assert closest.allocatable_ram_gb >= ram_gb - 1e-6
        for pool in hyperplane.pools().values():
            if (pool.cores, pool.ram_gb) < (closest.cores, closest.ram_gb):
                assert pool.allocatable_cores < cores or pool.allocatable_ram_gb < ram_gb

    @pytest.mark.parametrize(
        ("asked", "words"),
        [
            ((95, 1), "95 cores and 1 GB on one node"),
            ((1, 676), "1 cores and 676 GB on one node"),
        ],
    )
    @pytest.mark.usefixtures("published_pools")
    def test_if_no_pool_is_sufficient_the_error_names_the_largest(self, asked, words):
        with pytest.raises(DoesNotFit) as caught:
            hyperplane.closest_pool(*asked)
        error = caught.value
        assert error.pool == "96_768"
        assert error.asked == words
        assert "96_768 (94 cores, 675 GB)" in error.allowed
        assert "more nodes" in error.faults[0].advice

    @pytest.mark.parametrize(
        "bad", [-1, float("nan"), float("inf"), "4", None, True, np.float64("nan")]
    )
    @pytest.mark.parametrize("name", ["cores", "ram_gb", "ngpus"])
    def test_values_that_are_not_amounts_are_faults(self, name, bad):
        with pytest.raises(RequestError) as caught:
            hyperplane.closest_pool(**{"cores": 1, "ram_gb": 1, name: bad})
        [fault] = caught.value.faults
        assert (fault.where, fault.asked) == (name, repr(bad))
        upper = " and at most 1e+12" if bad == float("inf") else ""
        assert fault.allowed == f"a number of at least 0{upper}"

    def test_requested_gpus_select_a_pool_with_gpus(self):
        pools = [_pool(8, 32), _pool(16, 64, gpus=1, name="gpu"), _pool(32, 128, name="big")]
        assert smallest_pool(pools, 4, gb_to_bytes(4), 1).name == "gpu"
        with pytest.raises(DoesNotFit) as caught:
            smallest_pool(pools, 64, gb_to_bytes(4), 1)
        with pytest.raises(DoesNotFit, match="1 GPU on one node, the most that a pool has"):
            smallest_pool(pools, 4, gb_to_bytes(4), 2)
        with pytest.raises(DoesNotFit, match="no GPU, because no pool has one; add a pool"):
            smallest_pool([_pool(8, 32)], 4, gb_to_bytes(4), 1)
        assert caught.value.pool == "gpu"


@st.composite
def workers(draw):
    nprocs, nthreads = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    ram = draw(st.integers(10**6, 10**12))
    return WorkerSpec(nprocs, nthreads, ram, nprocs * nthreads)


class TestFitMachine:
    @settings(max_examples=scaled(60, 300))
    @given(
        workers(),
        st.integers(1, 50),
        st.builds(MachineCapacity, st.integers(1, 256), st.integers(10**6, 10**12)),
        st.integers(0, 8),
    )
    def test_never_more_than_the_machine_has_or_than_was_asked(self, asked, nodes, machine, single):
        try:
            given = fit_machine(asked, nodes, machine, single)
        except DoesNotFit:
            assert machine.ram < min(MIN_RAM, asked.ram_per_proc)
            return
        threads, ram = nodes * asked.total_threads, nodes * asked.total_ram
        assert given.worker.ram_per_proc >= min(MIN_RAM, asked.ram_per_proc)
        total_threads = given.nodes * given.worker.total_threads
        total_ram = given.nodes * given.worker.total_ram
        assert total_threads <= machine.cores
        assert total_ram <= machine.ram
        assert total_threads <= threads
        assert total_ram <= ram
        fitted = threads <= machine.cores and ram <= machine.ram
        assert (given.note == "") == fitted
        if fitted:
            assert (given.worker, given.nodes) == (asked, nodes)

    @given(workers(), st.integers(1, 50), st.integers(0, 100), st.integers(0, 10**9))
    def test_what_fits_is_left_alone(self, asked, nodes, cores, ram):
        machine = MachineCapacity(
            nodes * asked.total_threads + cores, nodes * asked.total_ram + ram
        )
        assert fit_machine(asked, nodes, machine) == (asked, nodes, "")

    @pytest.mark.parametrize(
        ("asked", "nodes", "machine", "layout"),
        [
            # Too many threads: a new layout for the cores, with all the requested memory.
            ((15, 1, 0.7), 2, (2, 30), (1, 2, 21.0)),
            ((15, 1, 0.7), 2, (8, 30), (4, 2, 5.25)),
            ((15, 1, 0.7), 2, (16, 8), (4, 4, 2.0)),
            # Too much memory only: processes and threads stay, on one node.
            ((2, 2, 4.0), 2, (8, 8), (4, 2, 2.0)),
            # Too little memory for so many processes.
            ((15, 1, 0.7), 2, (8, 0.5), (2, 2, 0.25)),
            ((8, 1, 4.0), 1, (8, 0.2), (1, 1, 0.2)),
            ((8, 1, 0.05), 2, (8, 0.2), (4, 2, 0.05)),
        ],
    )
    def test_a_request_is_reduced_to_the_machine(self, asked, nodes, machine, layout):
        nprocs, nthreads, ram = asked
        worker = WorkerSpec.from_gb(nprocs, nthreads, ram, nprocs * nthreads)
        capacity = MachineCapacity(machine[0], gb_to_bytes(machine[1]))
        fitted = fit_machine(worker, nodes, capacity)
        assert fitted.nodes == 1
        assert fitted.worker == WorkerSpec.from_gb(*layout, layout[0] * layout[1])

    def test_too_little_memory_for_one_process_is_an_error_with_advice(self):
        worker = WorkerSpec.from_gb(15, 1, 0.7, 15)
        with pytest.raises(DoesNotFit) as caught:
            fit_machine(worker, 2, MachineCapacity(8, gb_to_bytes(0.15)))
        error = caught.value
        assert error.asked == "15 processes x 1 thread x 0.7 GB, 21 GB in all"
        assert error.allowed == (
            "at most 150 MB, the free memory of this machine less a reserve; "
            "a worker process needs 200 MB"
        )
        assert "larger machine" in error.faults[0].advice

    def test_the_note_has_the_request_and_the_reduced_layout(self):
        note = fit_machine(
            WorkerSpec.from_gb(15, 1, 0.7, 15), 2, MachineCapacity(2, gb_to_bytes(16.04))
        ).note
        assert note == (
            "asked 2 nodes x 15 processes x 1 thread x 0.7 GB (30 threads, 21 GB); "
            "this machine gives 1 process x 2 threads x 16.04 GB "
            "(2 cores, 16.0 GB free less a reserve)"
        )

    @given(workers(), st.integers(1, 50), st.integers(1, 256))
    def test_the_number_of_cores_that_one_process_takes_is_kept(self, asked, nodes, cores):
        assume(nodes * asked.total_threads > cores)
        given = fit_machine(
            asked, nodes, MachineCapacity(cores, 10**12), single_process_cores=cores
        )
        assert (given.worker.nprocs, given.worker.nthreads) == (1, cores)
