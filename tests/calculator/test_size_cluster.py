"""Sizing calculator: published figures, rules and printed advice."""

import json
import math

import dask.config
import numpy as np
import pytest
from html_pages import read_page
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane import config
from hyperplane.clusters.registry import ENGINES
from hyperplane.core.units import format_bytes
from hyperplane.errors import DoesNotFit, RequestError, UnknownPool
from hyperplane.spec.pool import PoolSpec

OWN = PoolSpec(
    name="a<b>&c", cores=10, ram_gb=20, allocatable_cores=9, allocatable_ram_gb=15, price_per_hour=2
)


class TestPublishedFigures:
    @pytest.mark.parametrize(
        ("arguments", "memory_gb", "pool", "nodes"),
        [
            # 100 GB group-by -> 800 GB -> 25 x 32_32 by the nominal 32 GB, 30 by allocatable 27 GB.
            ({"tasks": "heavy", "basis": "nominal"}, 800, "32_32", 25),
            ({"tasks": "heavy"}, 800, "32_32", 30),
            # ... or 8 x 16_128 by the allocatable 110 GB, 7 by the nominal 128.
            ({"tasks": "light"}, 800, "16_128", 8),
            ({"tasks": "light", "basis": "nominal"}, 800, "16_128", 7),
            ({}, 800, "16_128", 8),
        ],
    )
    def test_nodes_for_a_groupby_of_100_gb(self, arguments, memory_gb, pool, nodes):
        for operation in ("medium", "groupby"):
            advice = hyperplane.size_cluster("100GB", operation, **arguments)
            assert (advice.memory_gb, advice.pool.name, advice.nodes) == (memory_gb, pool, nodes)
            assert advice.pieces == 1

    @pytest.mark.parametrize(("operation", "times"), [("light", 4), ("medium", 8), ("heavy", 48)])
    def test_memory_is_a_multiple_of_the_data(self, operation, times):
        advice = hyperplane.size_cluster("100GB", operation)
        assert advice.memory_gb == 100 * times
        assert advice.data_gb == 100
        assert advice.found.multiplier == times

    def test_multipliers_are_configurable_and_bytes_are_rounded_up(self):
        with dask.config.set({"hyperplane.sizing.multipliers.light": 1.5}):
            assert hyperplane.size_cluster((3, "B"), "light").found.memory == 5

    @pytest.mark.parametrize(("basis", "nodes"), [("nominal", 25), ("allocatable", 30)])
    def test_a_terabyte_is_split_into_ten_jobs(self, basis, nodes):
        advice = hyperplane.size_cluster("1TB", "groupby", "heavy", basis=basis)
        assert (advice.pieces, advice.pool.name, advice.nodes) == (10, "32_32", nodes)
        assert (advice.data_gb, advice.memory_gb) == (1000, 800)
        [warning] = [text for text in advice.warnings if text.startswith("split:")]
        assert "10 jobs of 100 GB (chunk_id 0 to 9)" in warning
        assert f"{nodes} nodes of 32_32" in warning
        assert f"{10 * nodes} nodes" in warning


class TestPieces:
    @pytest.mark.parametrize(
        ("data", "operation", "pieces"),
        [
            ("999GB", "groupby", 1),
            ("1001GB", "groupby", 11),
            ("1TB", "join", 10),
            ("1TB", "filter", 1),
            ("50TB", "light", 1),
        ],
    )
    def test_large_operations_that_combine_rows_are_split(self, data, operation, pieces):
        assert hyperplane.size_cluster(data, operation).pieces == pieces

    @pytest.mark.parametrize("pieces", [1, 4, np.int64(4)])
    def test_requested_pieces_override_the_rules(self, pieces):
        advice = hyperplane.size_cluster("1TB", "groupby", pieces=pieces)
        assert advice.pieces == pieces
        assert advice.memory_gb == 8000 / pieces
        assert f"pieces: {pieces}, as requested" in advice.reasons
        json.dumps(advice.to_dict())

    def test_bytes_of_a_piece_are_rounded_up(self):
        advice = hyperplane.size_cluster((100, "B"), "light", pieces=3)
        assert advice.found.memory == 34 * 4

    @pytest.mark.parametrize(
        "pieces", [0, -1, 2.5, 2.0, True, "3", "many", [1], float("nan"), float("inf")]
    )
    def test_values_that_are_not_counts_are_faults(self, pieces):
        with pytest.raises(RequestError) as caught:
            hyperplane.size_cluster("1TB", pieces=pieces)
        [fault] = caught.value.faults
        assert (fault.where, fault.asked) == ("pieces", repr(pieces))
        assert fault.allowed == "a whole number of at least 1"


@pytest.mark.usefixtures("published_pools")
class TestPoolThatIsChosen:
    @pytest.mark.parametrize(
        ("arguments", "pool"),
        [
            ({"operation": "heavy"}, "16_128"),
            ({"operation": "heavy", "tasks": "heavy"}, "32_32"),
            ({"operation": "light", "moves_data": False}, "32_32"),
            # Two of 16_16 give 24 GB for these 14, one of 32_32 gives 27.
            ({"operation": "light", "moves_data": False, "data": "3.5GB"}, "16_16"),
            ({"operation": "light", "moves_data": False, "tasks": "heavy"}, "32_32"),
        ],
    )
    def test_the_pool_is_one_of_the_family_in_the_rules(self, arguments, pool):
        assert hyperplane.size_cluster(**{"data": "100GB", **arguments}).pool.name == pool

    @pytest.mark.parametrize(
        ("data", "pool"),
        [
            # Fewest cores first; 4_32 has no more than 7 GB.
            ("0.5GB", "4_32"),
            ("0.8GB", "4_32"),
            ("1GB", "8_16"),
            ("1.7GB", "8_64"),
            ("7GB", "8_64"),
            ("8GB", "16_128"),
        ],
    )
    def test_a_smaller_pool_is_chosen_if_one_node_of_it_suffices(self, data, pool):
        advice = hyperplane.size_cluster(data, "groupby")
        assert (advice.pool.name, advice.nodes) == (pool, 1)
        reason = f"pool: {pool}: the smallest pool whose one node is enough"
        assert (reason in advice.reasons) == (pool != "16_128")

    @pytest.mark.parametrize(
        "arguments", [{"tasks": "heavy"}, {"basis": "nominal"}, {"pool": "96_768"}]
    )
    def test_no_smaller_pool_is_chosen_for_nominal_basis_heavy_tasks_or_a_requested_pool(
        self, arguments
    ):
        advice = hyperplane.size_cluster("0.5GB", "groupby", **arguments)
        assert advice.pool.name in {"32_32", "16_128", "96_768"}
        assert advice.nodes == 1

    @pytest.mark.parametrize("name", ["8_64", "DASK_POOL_8_64", "hyperplane-small-high-mem"])
    def test_a_requested_pool_is_used(self, name):
        advice = hyperplane.size_cluster("100GB", "groupby", pool=name)
        assert (advice.pool.name, advice.nodes) == ("8_64", math.ceil(800 / 57.999))
        assert "pool: 8_64, as requested" in advice.reasons

    def test_a_pool_spec_outside_of_the_configuration_is_used(self):
        advice = hyperplane.size_cluster("10GB", "groupby", pool=OWN)
        assert advice.pool is OWN
        assert {option.pool.name for option in advice.alternatives} == set(hyperplane.pools())
        plan = hyperplane.plan_cluster(advice, local_fit="exact")
        assert (plan.pool, plan.nodes, plan.worker) == (OWN, advice.nodes, advice.worker)

    def test_the_alternatives_are_all_other_pools(self):
        advice = hyperplane.size_cluster("100GB", "groupby")
        names = [option.pool.name for option in advice.alternatives]
        assert names == [name for name in hyperplane.pools() if name != "16_128"]
        for option in advice.alternatives:
            assert option.total_ram >= advice.found.memory

    def test_an_unknown_pool_in_a_family_is_a_fault(self):
        with (
            dask.config.set({"hyperplane.sizing.families.few_tasks": ["pool_17_17"]}),
            pytest.raises(RequestError) as caught,
        ):
            hyperplane.size_cluster("100GB")
        [fault] = caught.value.faults
        assert (fault.where, fault.asked) == ("hyperplane.sizing.families", "17_17")
        assert "16_128" in fault.allowed


SIZES = st.floats(1e-6, 5e4) | st.integers(1, 10_000)
QUESTIONS = {
    "data": SIZES,
    "operation": st.sampled_from(["light", "filter", "medium", "groupby", "heavy", "join"]),
    "tasks": st.sampled_from(["light", "heavy"]),
    "moves_data": st.booleans(),
    "pool": st.none() | st.sampled_from(["4_32", "8_8", "16_16", "32_32", "96_768"]),
    "pieces": st.none() | st.integers(1, 40),
}


class TestEveryInput:
    @settings(max_examples=scaled(40, 200))
    @given(st.fixed_dictionaries(QUESTIONS))
    def test_enough_is_given_and_no_node_too_many(self, question):
        advice = hyperplane.size_cluster(**question)
        option, memory = advice.found.option, advice.found.memory
        assert option.total_ram >= memory
        assert advice.given_gb >= advice.memory_gb
        assert (option.nodes - 1) * option.worker.total_ram < memory
        # The pieces hold all the data.
        assert memory * advice.pieces >= advice.measured.size * advice.found.multiplier
        # The layout is the one of the pool.
        assert advice.worker == hyperplane.fit_workers(advice.pool)
        assert not any(text.startswith("nominal basis") for text in advice.warnings)

    @settings(max_examples=scaled(20, 100))
    @given(st.fixed_dictionaries(QUESTIONS), st.sampled_from(["allocatable", "nominal"]))
    def test_the_answer_can_be_read_kept_and_planned(self, question, basis):
        advice = hyperplane.size_cluster(**question, basis=basis)
        assert json.loads(json.dumps(advice.to_dict()))["nodes"] == advice.nodes
        assert str(advice)
        assert advice._repr_html_()
        plan = hyperplane.plan_cluster(advice, local_fit="exact")
        assert (plan.nodes, plan.worker, plan.pool) == (advice.nodes, advice.worker, advice.pool)

    @settings(max_examples=scaled(20, 100))
    @given(st.fixed_dictionaries(QUESTIONS))
    def test_nominal_says_so_when_it_gives_too_little(self, question):
        advice = hyperplane.size_cluster(**question, basis="nominal")
        enough = advice.found.option.total_ram >= advice.found.memory
        warned = any(text.startswith("nominal basis") for text in advice.warnings)
        assert warned != enough


class TestComfortable:
    """Number of nodes that satisfies the published rules of thumb."""

    def test_the_reason_for_the_published_example(self):
        advice = hyperplane.size_cluster("100GB", "groupby")
        assert (advice.nodes, advice.comfortable, advice.warnings) == (8, 10, ())
        [line] = [text for label, text in advice.rows() if label == "comfortable"]
        assert line == (
            "10 nodes: an aggregation needs 10 times its data in memory, 8 nodes have 8.8 times; "
            "workers above 75% of their memory may spill or fail, 8 nodes would be 91% full"
        )
        # That number of nodes satisfies the rule, one node less does not.
        assert 10 * advice.worker.total_ram >= 10 * 100e9 > 9 * advice.worker.total_ram

    @pytest.mark.parametrize("operation", ["filter", "join", "light", "heavy"])
    def test_the_rule_of_ten_times_the_data_applies_only_to_aggregations(self, operation):
        advice = hyperplane.size_cluster("100GB", operation)
        assert "aggregation" not in advice.found.comfortable.reason

    def test_no_reason_is_shown_if_the_memory_suffices(self):
        advice = hyperplane.size_cluster("1GB", "groupby", pool="16_128")
        assert (advice.nodes, advice.comfortable) == (1, 1)
        assert advice.found.comfortable.reason == ""
        assert "comfortable" not in str(advice)

    def test_nodes_are_added_until_workers_are_three_quarters_full(self):
        advice = hyperplane.size_cluster("100GB", "join")
        assert advice.comfortable == 59
        assert advice.found.comfortable.reason.endswith("44 nodes would be 99% full")
        assert 4800e9 / (59 * advice.worker.total_ram) <= 0.75
        assert 4800e9 / (58 * advice.worker.total_ram) > 0.75

    @given(st.fixed_dictionaries(QUESTIONS), st.sampled_from(["allocatable", "nominal"]))
    @settings(max_examples=scaled(20, 100))
    def test_meets_both_rules_and_is_the_least_that_does(self, question, basis):
        advice = hyperplane.size_cluster(**question, basis=basis)
        data = -(-advice.measured.size // advice.pieces)
        aggregates = config.sizing_rules().is_aggregation(question["operation"])

        def is_met(nodes):
            ram = nodes * advice.worker.total_ram
            return advice.found.memory <= 0.75 * ram * (1 + 1e-9) and not (
                aggregates and ram < 10 * data
            )

        assert advice.comfortable >= advice.nodes
        assert is_met(advice.comfortable)
        assert (advice.comfortable == advice.nodes) == (advice.found.comfortable.reason == "")
        if advice.comfortable > advice.nodes:
            assert not is_met(advice.comfortable - 1)

    def test_the_rules_of_thumb_are_configurable(self):
        changes = {
            "hyperplane.sizing.checks.full_fraction": 1.0,
            "hyperplane.sizing.checks.aggregation_ratio": 2,
        }
        with dask.config.set(changes):
            assert hyperplane.size_cluster("100GB", "groupby").comfortable == 8
            assert config.faults(ENGINES) == []


class TestCost:
    def test_the_cost_is_that_of_all_nodes(self):
        with dask.config.set({"hyperplane.pools.pool_32_32.price_per_hour": 0.5}):
            advice = hyperplane.size_cluster("100GB", "groupby", "heavy")
        assert advice.cost_per_hour == 15.0
        assert advice.to_dict()["cost_per_hour"] == 15.0
        assert "15 per hour" in str(advice)

    def test_the_cost_is_zero_for_a_free_pool_and_none_without_a_price(self):
        with dask.config.set({"hyperplane.pools.pool_32_32.price_per_hour": 0}):
            advice = hyperplane.size_cluster("100GB", "groupby", "heavy")
        assert advice.cost_per_hour == 0
        assert "0 per hour" in str(advice)
        advice = hyperplane.size_cluster("100GB", "groupby", "heavy")
        assert advice.cost_per_hour is None
        assert "per hour" not in str(advice)

    def test_alternatives_have_the_costs_of_their_pools(self):
        with dask.config.set({"hyperplane.pools.pool_8_64.price_per_hour": 0.25}):
            advice = hyperplane.size_cluster("100GB", "groupby")
        costs = {option.pool.name: option.cost_per_hour for option in advice.alternatives}
        assert costs.pop("8_64") == 14 * 0.25
        assert set(costs.values()) == {None}


class TestFaults:
    def test_all_faults_are_reported_together(self, tmp_path):
        with pytest.raises(RequestError) as caught:
            hyperplane.size_cluster(
                str(tmp_path / "nothing"),
                "gruopby",
                "some",
                basis="real",
                pool="17_17",
                moves_data="yes",
                pieces=0,
            )
        assert type(caught.value) is RequestError
        assert {fault.where for fault in caught.value.faults} == {
            "data",
            "operation",
            "tasks",
            "basis",
            "pool",
            "moves_data",
            "pieces",
        }
        assert str(caught.value).startswith("7 faults in the request")

    @pytest.mark.parametrize(
        ("arguments", "asked", "allowed"),
        [
            ({"tasks": "many"}, "'many'", "'light' or 'heavy'"),
            ({"tasks": ["light"]}, "['light']", "'light' or 'heavy'"),
            ({"basis": None}, "None", "'allocatable' or 'nominal'"),
            ({"moves_data": "no"}, "'no'", "True or False"),
        ],
    )
    def test_faults_name_the_allowed_values(self, arguments, asked, allowed):
        with pytest.raises(RequestError) as caught:
            hyperplane.size_cluster("1GB", **arguments)
        [fault] = caught.value.faults
        assert ([fault.where], fault.asked, fault.allowed) == ([*arguments], asked, allowed)


class TestWhatIsShown:
    def test_to_dict_has_all_values(self):
        advice = hyperplane.size_cluster("100GB", "groupby", "heavy", basis="nominal")
        shown = json.loads(json.dumps(advice.to_dict()))
        reasons, warnings, others = (shown.pop(k) for k in ("reasons", "warnings", "alternatives"))
        assert shown == {
            "data_gb": 100.0,
            "measured": "as given",
            "operation": "groupby",
            "weight": "medium",
            "multiplier": 8.0,
            "tasks": "heavy",
            "basis": "nominal",
            "memory_gb": 800.0,
            "given_gb": 674.975,
            "pieces": 1,
            "pool": "32_32",
            "nodes": 25,
            "worker": {
                "nprocs": 7,
                "nthreads": 4,
                "ram_gb_per_proc": 3.857,
                "cores_per_worker": 28,
                "ngpus": 0,
            },
            "total_ram_gb": 674.975,
            "total_threads": 700,
            "cost_per_hour": None,
            "comfortable_nodes": 40,
        }
        assert (tuple(reasons), tuple(warnings)) == (advice.reasons, advice.warnings)
        assert [other["pool"] for other in others] == [o.pool.name for o in advice.alternatives]

    def test_as_arguments_returns_arguments_of_initialize_cluster(self):
        advice = hyperplane.size_cluster("100GB", "groupby", "heavy")
        assert advice.as_arguments() == {
            "num_workers": 30,
            "pool": "32_32",
            "nprocs": 7,
            "nthreads": 4,
            "ram_gb_per_proc": 3.857,
            "cores_per_worker": 28,
            "ngpus": 0,
        }

    @pytest.mark.usefixtures("published_pools")
    def test_the_text_has_the_cluster_the_reasons_and_the_alternatives(self):
        advice = hyperplane.size_cluster("100GB", "groupby", "heavy")
        text = str(advice)
        assert repr(advice) == text
        for fact in (
            "data         100 GB (as given)",
            "memory       800 GB needed, 810 GB given",
            "cluster      30 nodes of pool 32_32 (28 cores, 27 GB)",
            "worker       7 processes x 4 threads x 3.857 GB on each node, cores_per_worker 28",
            "total        210 worker processes, 840 threads",
            "comfortable  40 nodes: an aggregation needs 10 times its data in memory, 30 ",
            "why          memory: groupby is medium: 100 GB x 8 = 800 GB",
            "why          pool: 32_32: many tasks need cores",
            "why          nodes: 800 GB / 27 GB (allocatable) = 29.63 -> 30 nodes",
            "instead      161 nodes of 8_8 (804.7 GB); 115 nodes of 4_32 (805 GB); ",
        ):
            assert f"\n{fact}" in f"\n{text}"

    def test_the_text_of_a_split_job_shows_its_pieces(self):
        text = str(hyperplane.size_cluster("1TB", "groupby"))
        assert "pieces       10, each on a cluster like this" in text

    def test_html_has_the_same_rows_escaped(self):
        advice = hyperplane.size_cluster("100GB", "groupby", pool=OWN)
        page = read_page(advice._repr_html_())
        assert f"{advice.nodes} nodes of pool a<b>&c (9 cores, 15 GB)" in page.text
        assert "800 GB needed" in page.text
        for label, text in advice.summary_rows():
            assert label in page.cells
            assert text in page.cells

    def test_html_has_a_bar_for_the_memory_of_each_pool(self):
        advice = hyperplane.size_cluster("100GB", "groupby")
        page = read_page(advice._repr_html_())
        assert page.classes.count("hp-bar") == 1 + len(advice.alternatives)
        for option in (advice.option, *advice.alternatives):
            mark = " (recommended)" if option is advice.option else ""
            at = page.cells.index(f"{option.pool.name}{mark}")
            assert page.cells[at + 1 : at + 4] == [
                str(option.nodes),
                str(option.worker),
                format_bytes(option.total_ram),
            ]


class TestOtherFunctions:
    def test_fit_workers_accepts_names_and_pool_specs(self):
        by_name = hyperplane.fit_workers("Hyperplane-Med")
        assert by_name == hyperplane.fit_workers(hyperplane.get_pool("16_16"))
        assert str(by_name) == "5 processes x 3 threads x 2.4 GB"

    def test_fit_workers_of_an_unknown_pool_is_an_error(self):
        with pytest.raises(UnknownPool):
            hyperplane.fit_workers("hyperplane-huge")

    def test_closest_pool_considers_configured_pools(self):
        site = {"cores": 128, "ram_gb": 900, "allocatable_cores": 127, "allocatable_ram_gb": 880}
        with pytest.raises(DoesNotFit):
            hyperplane.closest_pool(100, 700)
        with dask.config.set({"hyperplane.pools.pool_128_900": site}):
            assert hyperplane.closest_pool(100, 700).name == "128_900"
