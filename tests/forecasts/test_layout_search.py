"""Search of layouts on toy jobs with known answers."""

from __future__ import annotations

import pytest

from hyperplane.forecasts.layout_search import (
    LayoutCandidate,
    LayoutSearch,
    MeasuredOption,
    choose_option,
    find_front,
    list_workers,
)
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

GB = 10**9


def make_pool(name, cores, ram_gb, **options):
    return PoolSpec(
        name=name, cores=cores, ram_gb=ram_gb, allocatable_cores=cores, allocatable_ram_gb=ram_gb,
        **options,
    )  # fmt: skip


def make_option(name, seconds, cost, nodes=1, nprocs=1, nthreads=4, **options):
    worker = WorkerSpec(nprocs, nthreads, GB, nprocs * nthreads)
    return MeasuredOption(
        make_pool(name, 4, 8, **options), nodes, worker, GB, GB, GB, GB, seconds, cost
    )


class ToyJob:
    """A job of ``work`` seconds that needs ``need`` bytes for each thread of a process."""

    def __init__(self, work, need):
        self.work, self.need = work, need
        self.simulated = []

    def simulate(self, candidate):
        self.simulated.append(candidate)
        worker = candidate.worker
        high = self.need * worker.nthreads
        if high > worker.ram_per_proc:
            return f"{high} bytes are needed"
        seconds = self.find_least_seconds(candidate.nodes * worker.total_threads)
        cost = self.find_cost(candidate.pool, candidate.nodes, seconds)
        return MeasuredOption(
            candidate.pool, candidate.nodes, worker, high, high, high, high, seconds, cost
        )

    def find_least_seconds(self, threads):
        return self.work / threads

    def find_cost(self, pool, nodes, seconds):
        return nodes * pool.cores * seconds / 3600

    def candidates(self, *pools, nodes=(1, 2, 4)):
        for pool in pools:
            for worker in list_workers(pool):
                for count in nodes:
                    seconds = self.find_least_seconds(count * worker.total_threads)
                    cost = self.find_cost(pool, count, seconds)
                    least = 0.9 * self.need * worker.nthreads
                    yield LayoutCandidate(pool, count, worker, least, seconds, cost)


def test_all_layouts_of_a_node_are_listed():
    found = [(each.nprocs, each.nthreads) for each in list_workers(make_pool("a", 4, 8))]
    assert found == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)]
    assert {each.total_ram for each in list_workers(make_pool("a", 4, 8))} <= {8 * GB, 7998000000}


def test_a_layout_whose_least_memory_is_too_much_is_not_simulated():
    job, pool = ToyJob(100, 1), make_pool("a", 2, 4)
    search = LayoutSearch(job, 0.5)
    worker = WorkerSpec(1, 2, 4 * GB, 2)
    search.search([LayoutCandidate(pool, 1, worker, 2 * GB + 1, 50.0, 1.0)])
    assert (search.found, search.simulated) == ([], 0)
    search.search([LayoutCandidate(pool, 1, worker, 2 * GB, 50.0, 1.0)])
    assert len(search.found) == 1


@pytest.mark.parametrize("need_gb", [0.1, 1, 2, 3, 7])
def test_the_cheapest_option_is_as_good_as_that_of_all_layouts(need_gb):
    job = ToyJob(1000, need_gb * GB)
    pools = make_pool("few", 4, 8), make_pool("many", 16, 16)
    candidates = list(job.candidates(*pools))
    search = LayoutSearch(job, 1.0)
    search.search(candidates)
    all_options = [found for each in candidates if not isinstance(found := job.simulate(each), str)]
    assert choose_option(search.found).cost <= 1.1 * min(each.cost for each in all_options)
    assert search.simulated < len(candidates) / 2
    # No layout that was left out is better by more than the tolerance.
    for each in all_options:
        assert any(
            other.seconds <= 1.1 * each.seconds and other.cost <= 1.1 * each.cost
            for other in search.found
        )
    # Each pool has an option.
    assert {each.pool.name for each in search.found} == {each.pool.name for each in all_options}


def test_a_job_that_fits_nowhere_has_no_option_after_few_simulations():
    job = ToyJob(1000, 8.5 * GB)
    candidates = list(job.candidates(make_pool("few", 16, 8), nodes=(1, 2, 3, 4, 6, 8, 12, 16)))
    search = LayoutSearch(job, 1.0)
    search.search(candidates)
    assert search.found == []
    assert search.simulated <= 6
    assert search.refused == {"few": "8500000000.0 bytes are needed"}


def test_the_front_has_options_than_which_no_other_is_faster_and_cheaper():
    slow, fast = make_option("a", 10, 1), make_option("b", 5, 2)
    worse, equal = make_option("c", 6, 3), make_option("d", 10, 1)
    front = find_front([slow, worse, fast, equal])
    assert [each.pool.name for each in front] == ["b", "a"]


def test_of_equal_costs_the_fewest_nodes_and_then_the_fastest_are_chosen():
    one, two = make_option("a", 10, 1.05), make_option("b", 5, 1.0, nodes=2)
    assert choose_option([one, two]) is one
    faster = make_option("c", 4, 1.09)
    assert choose_option([one, two, faster]) is faster
    cheap = make_option("d", 100, 0.5, nodes=8)
    assert choose_option([one, two, faster, cheap]) is cheap


def test_of_equally_fast_layouts_that_of_the_rule_is_chosen():
    layouts = [make_option("a", 10, 1, nprocs=p, nthreads=t) for p, t in ((4, 1), (2, 2), (1, 4))]
    chosen = choose_option(layouts)
    assert (chosen.worker.nprocs, chosen.worker.nthreads) == (2, 2)


def test_costs_are_those_of_whole_nodes():
    option = make_option("a", 1800, 1, nodes=3, price_per_hour=2)
    assert option.core_hours == 3 * 4 / 2
    assert option.price == 3 * 2 / 2
    assert make_option("a", 1800, 1).price is None
    assert option.as_arguments()["num_workers"] == 3
