"""Checks of the arguments of initialize_cluster."""

import inspect
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterArguments, ClusterRequest, read_request
from hyperplane.spec.worker import WorkerSpec

DOCUMENTED = {
    "num_workers": 2,
    "local_mode": False,
    "worker_spec_yaml": None,
    "timeout": 1200,
    "nthreads": 1,
    "nprocs": 15,
    "ram_gb_per_proc": 0.7,
    "cores_per_worker": 15,
    "scheduler_deploy_mode": "remote",
    "dashboard_port": "random",
    "logging": "quiet",
    "ngpus": 0,
    "node_selector": None,
    "scheduler_ram": None,
    "scheduler_cpu": None,
}
OURS = {
    "engine": "auto",
    "engine_options": None,
    "pool": None,
    "memory": None,
    "idle_timeout": None,
    "name": None,
    "local_fit": None,
    "tuning": None,
    "framework": None,
    "budget": None,
    "stall_timeout": None,
    "oom": None,
    "preflight": None,
}
NAN, INF = float("nan"), float("inf")
COUNT, WHOLE = "at least 1", "a whole number"
GIGABYTES = "a number of GB, or text such as '2.4GB'"
SECONDS = "seconds, more than 0, or text such as '30 minutes'"
PORT = "'random' or a port number from 0 to 65535"
NAME = "a name of at most 63 lower-case letters, digits and -, such as my-cluster"

# Argument, invalid value, start of the description of valid values.
BAD = [
    ("num_workers", 0, COUNT),
    ("num_workers", -3, COUNT),
    ("num_workers", (10, 2), WHOLE),
    ("budget", "much", "core-hours as a number above 0"),
    ("num_workers", 10**7, "at most 1000000"),
    ("nprocs", 10**30, "at most 1000000"),
    ("timeout", "1e400s", SECONDS),
    ("timeout", 10**400, SECONDS),
    ("num_workers", 2.5, WHOLE),
    ("num_workers", "two", WHOLE),
    ("num_workers", True, WHOLE),
    ("num_workers", None, WHOLE),
    ("num_workers", [2], WHOLE),
    ("num_workers", NAN, ""),
    ("num_workers", INF, ""),
    ("nprocs", 0, COUNT),
    ("nprocs", False, WHOLE),
    ("nprocs", np.True_, WHOLE),
    ("nprocs", np.array([1, 2]), WHOLE),
    ("nprocs", int, WHOLE),
    ("nprocs", "", WHOLE),
    ("nthreads", 0, COUNT),
    ("nthreads", 1.5, WHOLE),
    ("ngpus", -1, "at least 0"),
    ("ngpus", True, WHOLE),
    ("ram_gb_per_proc", 0, "more than 0"),
    ("ram_gb_per_proc", -0.7, "more than 0"),
    ("ram_gb_per_proc", NAN, ""),
    ("ram_gb_per_proc", INF, "at most 1000000000000"),
    ("ram_gb_per_proc", True, GIGABYTES),
    ("ram_gb_per_proc", np.False_, GIGABYTES),
    ("ram_gb_per_proc", "2.4XB", GIGABYTES),
    ("ram_gb_per_proc", "2,4GB", f"{GIGABYTES}; write 2.4GB"),
    ("scheduler_ram", "2,5Gi", "a memory size such as '4Gi' or '4GB'; write 2.5Gi"),
    ("ram_gb_per_proc", "nan", GIGABYTES),
    ("ram_gb_per_proc", "0GB", "more than 0"),
    ("ram_gb_per_proc", "", "a number"),
    ("ram_gb_per_proc", None, "a number"),
    ("ram_gb_proc", -1, "more than 0"),
    ("cores_per_worker", 0, "more than 0"),
    ("cores_per_worker", INF, "a finite number"),
    ("cores_per_worker", "many", "a number"),
    ("cores_per_worker", True, "a number"),
    ("local_mode", "maybe", "True or False"),
    ("local_mode", 2, "True or False"),
    ("local_mode", None, "True or False"),
    ("worker_spec_yaml", 5, "text"),
    ("timeout", 0, "more than 0"),
    ("timeout", -5, SECONDS),
    ("timeout", NAN, SECONDS),
    ("timeout", True, SECONDS),
    ("timeout", "", SECONDS),
    ("timeout", "soon", SECONDS),
    ("timeout", "10 parsecs", SECONDS),
    ("timeout", [1], SECONDS),
    ("timeout", timedelta(0), "more than 0"),
    ("timeout", None, "a number"),
    ("idle_timeout", " ", SECONDS),
    ("idle_timeout", False, SECONDS),
    ("idle_timeout", 0, "more than 0"),
    ("stall_timeout", "a while", SECONDS),
    ("stall_timeout", 0, "more than 0"),
    ("oom", "ignore", "one of 'retry' or 'raise'"),
    ("oom", True, "one of 'retry' or 'raise'"),
    ("preflight", "perhaps", "True or False"),
    ("scheduler_deploy_mode", "pod", "one of 'remote' or 'local'"),
    ("dashboard_port", 65536, PORT),
    ("dashboard_port", -1, PORT),
    ("dashboard_port", "http", PORT),
    ("dashboard_port", True, PORT),
    ("dashboard_port", None, PORT),
    ("dashboard_port", 8787.0, PORT),
    ("logging", "loud", "one of 'quiet' or 'verbose'"),
    ("logging", None, "one of 'quiet' or 'verbose'"),
    ("node_selector", 5, "a mapping, or text"),
    ("scheduler_ram", "lots", "a memory size such as '4Gi'"),
    ("scheduler_ram", 4, "text"),
    ("scheduler_cpu", [1], "text, or a number"),
    ("scheduler_cpu", True, "a number"),
    ("engine", None, "text"),
    ("engine", 5, "text"),
    ("engine_options", "hosts", "a mapping"),
    ("engine_options", 5, "a mapping"),
    ("pool", 16, "text, or an object of type PoolSpec"),
    ("pool", {"name": "16_16"}, "text, or an object of type PoolSpec"),
    ("memory", "strict", "a MemoryPolicy, or a mapping such as {'pause': 0.85}"),
    ("memory", 0.8, "a MemoryPolicy, or a mapping such as {'pause': 0.85}"),
    ("name", "My_Cluster", NAME),
    ("name", "", NAME),
    ("name", "-a", NAME),
    ("name", "a-", NAME),
    ("name", "a" * 64, NAME),
    ("name", 5, "text"),
    ("local_fit", "loose", "one of 'fit' or 'exact'"),
    ("tuning", 7, "text"),
    ("framework", 7, "text"),
]


def _good(**arguments):
    request, faults = read_request(ClusterArguments.from_mapping(arguments))
    assert faults == []
    return request


def _faults(**arguments):
    return read_request(ClusterArguments.from_mapping(arguments))[1]


def test_defaults_equal_the_documentation():
    assert _good().model_dump() == {**DOCUMENTED, **OURS}


def test_initialize_cluster_has_the_documented_order_of_arguments():
    parameters = inspect.signature(hyperplane.initialize_cluster).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    by_position = [
        name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    by_name = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    # replace= and sync= are not part of a request.
    assert (by_position, by_name) == (list(DOCUMENTED), [*OURS, "replace", "sync"])
    assert list(ClusterRequest.model_fields) == [*DOCUMENTED, *OURS]


@pytest.mark.parametrize("name", [*DOCUMENTED, *OURS])
def test_initialize_cluster_has_the_defaults_of_the_request(name):
    parameter = inspect.signature(hyperplane.initialize_cluster).parameters[name]
    default = ClusterRequest.model_fields[name].default
    assert parameter.default == default
    assert type(parameter.default) is type(default)


def test_every_argument_has_invalid_examples():
    assert len(BAD) >= 40
    assert {name for name, *_ in BAD} == {*DOCUMENTED, *OURS, "ram_gb_proc"}


@pytest.mark.parametrize(("name", "value", "allowed"), BAD)
def test_an_invalid_value_is_one_fault_with_the_value_and_allowed_values(name, value, allowed):
    request, faults = read_request(ClusterArguments.from_mapping({name: value}))
    [fault] = faults
    assert fault.where == name
    assert fault.asked == (repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "...")
    assert fault.allowed.startswith(allowed)
    assert fault.allowed
    # The default replaces the value, so that the rest of the request is checked too.
    assert request == ClusterRequest()


@settings(max_examples=scaled(40, 200))
@given(
    st.dictionaries(
        st.sampled_from([*DOCUMENTED, *OURS, "ram_gb_proc", "nproc"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.binary(max_size=3)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=6) | st.integers(), st.floats(), max_size=2),
        max_size=6,
    )
)
def test_any_arguments_give_a_request_and_each_fault_names_an_argument(arguments):
    request, faults = read_request(ClusterArguments.from_mapping(arguments))
    assert isinstance(request, ClusterRequest)
    for fault in faults:
        assert fault.allowed
        first = fault.where.partition(".")[0]
        assert first in arguments or first == "nprocs x nthreads"


def test_all_faults_are_reported_together():
    faults = _faults(num_workers=0, nprocs="x", logging="loud", memory={"pause": 7}, nproc=3)
    assert [fault.where for fault in faults] == [
        "nproc",
        "num_workers",
        "nprocs",
        "logging",
        "memory.pause",
    ]
    assert {fault.asked for fault in faults} == {"3", "0", "'x'", "'loud'", "7"}


def test_a_fault_of_a_label_names_the_label():
    [fault] = _faults(node_selector={"zone": "a", "count": 1})
    assert (fault.where, fault.asked, fault.allowed) == ("node_selector.count", "1", "text")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nproc", "nprocs"),
        ("nthread", "nthreads"),
        ("n_workers", "num_workers"),
        ("num_worker", "num_workers"),
        ("ram_per_proc", "ram_gb_per_proc"),
        ("ram_gb", "ram_gb_proc"),
        ("core_per_worker", "cores_per_worker"),
        ("time_out", "timeout"),
        ("idletimeout", "idle_timeout"),
        ("gpus", "ngpus"),
    ],
)
def test_an_unknown_argument_proposes_the_nearest(name, nearest):
    [fault] = _faults(**{name: 3})
    assert (fault.where, fault.asked) == (name, "3")
    assert fault.allowed == "one of " + ", ".join(ClusterRequest.model_fields)
    assert fault.advice.startswith("did you mean ")
    assert nearest in fault.advice


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("n_workers", "num_workers"),
        ("processes", "nprocs"),
        ("threads_per_worker", "nthreads"),
        ("memory_limit", "ram_gb_per_proc"),
        ("cores", "cores_per_worker"),
        ("dashboard_address", "dashboard_port"),
    ],
)
def test_names_of_dask_arguments_propose_the_equivalent(name, ours):
    [fault] = _faults(**{name: 3})
    assert fault.advice == f"did you mean {ours}?"


def test_a_name_unlike_any_argument_gets_no_proposal():
    [fault] = _faults(zzz=1)
    assert fault.advice == ""


class TestRam:
    def test_ram_gb_proc_is_an_alias_of_ram_gb_per_proc(self):
        request = _good(ram_gb_proc=2.4)
        assert request.ram_gb_per_proc == 2.4
        assert request.model_fields_set == {"ram_gb_per_proc"}

    def test_both_names_in_one_call_are_a_fault(self):
        [fault] = _faults(ram_gb_per_proc=1, ram_gb_proc=2)
        assert fault.where == "ram_gb_proc"
        assert fault.asked == "2 beside ram_gb_per_proc"
        assert fault.allowed == "one of the two names"

    @pytest.mark.parametrize(
        ("value", "gigabytes"),
        [
            ("2.4GB", 2.4),
            ("2.4 gb", 2.4),
            ("500MB", 0.5),
            ("4Gi", 4.294967296),
            ("2.4", 2.4),
            (2, 2.0),
            (np.float64(2.4), 2.4),
            (np.float32(0.5), 0.5),
            (np.int64(2), 2.0),
        ],
    )
    def test_text_with_a_unit_is_converted_to_gigabytes(self, value, gigabytes):
        request = _good(ram_gb_per_proc=value)
        assert request.ram_gb_per_proc == gigabytes
        assert type(request.ram_gb_per_proc) is float


@pytest.mark.parametrize("name", ["num_workers", "nprocs", "nthreads", "ngpus"])
@pytest.mark.parametrize("value", [np.int64(3), np.int8(3), np.uint16(3), 3.0, "3"])
def test_whole_numbers_of_numpy_floats_and_text_are_accepted(name, value):
    request = _good(**{name: value, "cores_per_worker": 100})
    assert getattr(request, name) == 3
    assert type(getattr(request, name)) is int


@pytest.mark.parametrize(
    ("name", "value", "normalized"),
    [
        ("timeout", "20 minutes", 1200.0),
        ("timeout", 0.5, 0.5),
        ("timeout", timedelta(minutes=2), 120.0),
        ("idle_timeout", "30 minutes", 1800.0),
        ("idle_timeout", 90, 90.0),
        ("idle_timeout", None, None),
        ("stall_timeout", "2 minutes", 120.0),
        ("dashboard_port", 8787, "8787"),
        ("dashboard_port", " 8787 ", "8787"),
        ("dashboard_port", "Random", "random"),
        ("dashboard_port", 0, "0"),
        ("node_selector", {}, {}),
        ("node_selector", "", ""),
        ("node_selector", {"zone": "a"}, {"zone": "a"}),
        ("scheduler_ram", "4Gi", "4Gi"),
        ("scheduler_cpu", "1500m", "1500m"),
        ("scheduler_cpu", 1.5, 1.5),
        ("cores_per_worker", 15.5, 15.5),
        ("name", "my-cluster-1", "my-cluster-1"),
        ("name", "a", "a"),
        ("memory", {"pause": 0.85}, MemoryPolicy(pause=0.85)),
        ("memory", MemoryPolicy(spill=False), MemoryPolicy(spill=False)),
        ("memory", None, None),
    ],
)
def test_valid_values_are_normalized(name, value, normalized):
    field = getattr(_good(**{name: value}), name)
    assert field == normalized
    assert type(field) is type(normalized)


def test_a_pool_may_be_a_pool_spec():
    pool = PoolSpec(name="x", cores=2, ram_gb=4, allocatable_cores=2, allocatable_ram_gb=3)
    assert _good(pool=pool).pool is pool


class TestThreadsAgainstCores:
    def test_the_fault_names_threads_and_cores(self):
        [fault] = _faults(nprocs=5, nthreads=4, cores_per_worker=15)
        assert fault.where == "nprocs x nthreads"
        assert fault.asked == "5 x 4 = 20"
        assert fault.allowed == "at most cores_per_worker = 15"
        assert "raise cores_per_worker to 20" in fault.advice
        [fault] = _faults(nprocs=200, nthreads=1)
        assert fault.allowed == "at most cores_per_worker = 15 (the default)"

    @pytest.mark.parametrize(
        "arguments",
        [
            {"nprocs": 5, "nthreads": 3, "cores_per_worker": 15},
            {"nprocs": 3, "nthreads": 1, "cores_per_worker": 3.5},
            # Published GPU calls.
            {"ngpus": 1, "nprocs": 1, "nthreads": 8, "ram_gb_per_proc": 7, "cores_per_worker": 2},
            {"ngpus": 1, "nprocs": 1, "nthreads": 8, "ram_gb_per_proc": 24, "cores_per_worker": 6},
            # A pool completes the layout; the planner checks the result.
            {"pool": "96_768", "nprocs": 47, "nthreads": 2},
            {"pool": "32_32", "cores_per_worker": 10},
            {"pool": "32_32", "cores_per_worker": 10, "nthreads": 2},
        ],
    )
    def test_layouts_that_fit_or_that_a_pool_completes_are_valid(self, arguments):
        assert _faults(**arguments) == []

    def test_a_complete_layout_with_a_pool_is_checked(self):
        arguments = {"nprocs": 4, "nthreads": 4, "cores_per_worker": 10}
        assert len(_faults(pool="32_32", **arguments)) == 1

    @pytest.mark.parametrize("faulty", [{"nprocs": 0}, {"cores_per_worker": 0}, {"ngpus": -1}])
    def test_threads_are_not_compared_if_a_number_is_invalid(self, faulty):
        faults = _faults(**{"nprocs": 40, **faulty})
        assert [fault.where for fault in faults] == list(faulty)


@pytest.mark.parametrize(
    ("arguments", "worker"),
    [
        ({}, WorkerSpec(15, 1, 700_000_000, 15)),
        (
            {"nprocs": 5, "nthreads": 3, "ram_gb_per_proc": 2.4},
            WorkerSpec(5, 3, 2_400_000_000, 15),
        ),
        ({"ram_gb_per_proc": 110 / 15}, WorkerSpec(15, 1, 7_333_333_333, 15)),
    ],
)
def test_the_layout_has_whole_bytes(arguments, worker):
    assert _good(**arguments).worker == worker


def test_a_request_is_immutable():
    with pytest.raises(ValueError, match="frozen"):
        _good().nprocs = 3


@pytest.mark.parametrize(
    ("memory", "start"),
    [
        ({"pauze": 0.8}, "memory.pauze = 0.8: no such key; expected one of target, spill, pause, "
         "terminate; did you mean pause?"),
        ({1: 0.8}, "memory.1 = 0.8: no such key; expected one of target, spill, pause"),
        ({"pause": 7}, "memory.pause = 7: expected a fraction in (0, 1]"),
        ({"pause": "85%"}, "memory.pause = '85%': expected a fraction in (0, 1], or False"),
    ],
)  # fmt: skip
def test_a_fault_of_the_memory_policy_is_reported_once(memory, start):
    _, faults = read_request(ClusterArguments.from_mapping({"memory": memory}))
    (fault,) = faults
    assert str(fault).startswith(start)
