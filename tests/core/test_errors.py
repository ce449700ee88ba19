"""Errors: messages, attributes and pickling."""

import ast
import builtins
import copy
import pickle
import re
from pathlib import Path

import pytest

import hyperplane
from hyperplane import errors
from hyperplane.errors import (
    BadLines,
    BadLinesWarning,
    ClusterStalled,
    ConfigError,
    DataError,
    DoesNotFit,
    EngineError,
    EngineUnavailable,
    Fault,
    GangFailed,
    GangTimeout,
    HyperplaneError,
    JobCancelled,
    JobError,
    JobFailed,
    JobStoreError,
    JobTimeout,
    MissingPackage,
    OutputConflict,
    OutputExists,
    PreflightError,
    QueryFailed,
    ReadError,
    RequestError,
    SchedulerUnreachable,
    SearchFailed,
    SkippedFile,
    StartFailed,
    StartTimeout,
    StorageError,
    TrainingFailed,
    UnknownArgument,
    UnknownKey,
    UnknownName,
    UnknownPool,
    UnsupportedModule,
    WorkerCrash,
    WorkerOutOfMemory,
    WrongType,
)

PAUSE = Fault("memory.pause", "7", "a fraction", "say 0.8", source="/etc/dask/site.yaml")
UNKNOWN = UnknownName("nproc", "2", "one of nprocs", "did you mean nprocs?", function="f")
PROCS = Fault("nprocs", "0", "at least 1")

# Each error with its attributes and its built-in base class.
EXAMPLES = [
    (WorkerOutOfMemory("no", peak=4), {"peak": 4, "attempts": 1, "fix": ""}, MemoryError),
    (HyperplaneError("no"), {}, Exception),
    (RequestError([PROCS, PAUSE]), {"faults": (PROCS, PAUSE)}, ValueError),
    (UnknownArgument([UNKNOWN]), {"faults": (UNKNOWN,)}, TypeError),
    (
        UnknownPool("16-17", ["16_16", "32_32"], ["16_16"]),
        {"name": "16-17", "known": ("16_16", "32_32")},
        ValueError,
    ),
    (
        DoesNotFit("16_16", "20 cores", "15 cores", "ask for less"),
        {"pool": "16_16", "asked": "20 cores", "allowed": "15 cores"},
        ValueError,
    ),
    (ConfigError([PAUSE, PROCS]), {"faults": (PAUSE, PROCS), "path": "memory.pause"}, ValueError),
    (
        MissingPackage("matplotlib", "plot"),
        {"package": "matplotlib", "extra": "plot"},
        ImportError,
    ),
    (UnsupportedModule("hyperplane.x", "use y"), {"module": "hyperplane.x"}, ImportError),
    (DataError("age", "holds text"), {"column": "age"}, ValueError),
    (ReadError("gs://a/b.csv", "it is cut off"), {"url": "gs://a/b.csv"}, OSError),
    (StorageError("gs://a/b", "no space"), {"url": "gs://a/b"}, OSError),
    (OutputExists("gs://a/b", "something"), {"url": "gs://a/b"}, FileExistsError),
    (OutputConflict("gs://a/b", "conflict"), {"url": "gs://a/b"}, StorageError),
    (
        BadLines("3 of 4 lines", "a.jsonl", 17, 3, 4),
        {"file": "a.jsonl", "line": 17, "bad": 3, "lines": 4},
        ValueError,
    ),
    (
        WrongType("n", '"x"', "line 513 of a.jsonl", "field 'n' is \"x\""),
        {"field": "n", "value": '"x"', "where": "line 513 of a.jsonl"},
        TypeError,
    ),
    (JobError("4f2a", "no such job"), {"job_id": "4f2a"}, RuntimeError),
    (JobFailed("4f2a", "failed: step 'a'"), {"job_id": "4f2a"}, JobError),
    (JobCancelled("4f2a", "cancelled"), {"job_id": "4f2a"}, JobError),
    (
        JobStoreError("/home/ada/jobs.db", "full", passing=True),
        {"store": "/home/ada/jobs.db", "passing": True},
        RuntimeError,
    ),
    (
        QueryFailed("no such job", [{"message": "no such job"}], [{"countJobs": 1}]),
        {"errors": [{"message": "no such job"}], "results": [{"countJobs": 1}]},
        RuntimeError,
    ),
    (JobTimeout("4f2a", "timed out"), {"job_id": "4f2a"}, TimeoutError),
    (
        SearchFailed("5 trials failed", failed=5, last="boom"),
        {"failed": 5, "last": "boom"},
        RuntimeError,
    ),
    (TrainingFailed("the parameter server was lost"), {}, RuntimeError),
    (
        GangFailed("rank 1 failed", rank=1, worker="tcp://a:1", exit_code=-9, restarts=2),
        {
            "rank": 1,
            "worker": "tcp://a:1",
            "exit_code": -9,
            "traceback": "",
            "log_tail": "",
            "restarts": 2,
        },
        RuntimeError,
    ),
    (
        GangTimeout("not within 5 s"),
        {
            "rank": -1,
            "worker": "",
            "exit_code": 0,
            "traceback": "",
            "log_tail": "",
            "restarts": 0,
        },
        TimeoutError,
    ),
    (
        WorkerOutOfMemory("too large", key="x", peak=9, limit=8, attempts=2),
        {"task": "x", "peak": 9, "limit": 8, "attempts": 2},
        MemoryError,
    ),
    (
        WorkerCrash("ended", key="x", exit_code=-11, attempts=4),
        {"task": "x", "exit_code": -11, "attempts": 4, "fix": "", "allowed_failures": 3},
        RuntimeError,
    ),
    (
        ClusterStalled("no progress", "memory", 3, 60.0),
        {"cause": "memory", "tasks": 3, "seconds": 60.0},
        RuntimeError,
    ),
    (
        SchedulerUnreachable("no answer", "silent", 90.0),
        {"cause": "silent", "seconds": 90.0, "reason": "scheduler-silent"},
        ConnectionError,
    ),
    (
        EngineError("local", "it broke", "line 1\nline 2"),
        {"engine": "local", "message": "it broke", "log_tail": "line 1\nline 2"},
        RuntimeError,
    ),
    (
        EngineUnavailable("ssh", "no hosts"),
        {"engine": "ssh", "message": "no hosts", "log_tail": ""},
        RuntimeError,
    ),
    (
        StartFailed("local", "no port", "tail"),
        {"engine": "local", "message": "no port", "log_tail": "tail"},
        EngineError,
    ),
    (
        PreflightError("ssh", [PROCS, PAUSE]),
        {"engine": "ssh", "faults": (PROCS, PAUSE), "log_tail": ""},
        StartFailed,
    ),
    (
        StartTimeout("local", "20 s", "tail"),
        {"engine": "local", "message": "20 s", "log_tail": "tail"},
        TimeoutError,
    ),
]
WARNINGS = {BadLinesWarning, SkippedFile}
each_error = pytest.mark.parametrize(
    ("error", "fields", "parent"), EXAMPLES, ids=[type(error).__name__ for error, *_ in EXAMPLES]
)


def test_every_public_error_has_an_example():
    public = {getattr(errors, name) for name in errors.__all__} - {
        Fault,
        UnknownKey,
        UnknownName,
        errors.check,
    }
    assert {type(error) for error, *_ in EXAMPLES} == public - WARNINGS


@pytest.mark.parametrize("kind", [BadLinesWarning, SkippedFile])
def test_warnings_are_user_warnings_and_pickle(kind):
    assert issubclass(kind, UserWarning)
    back = pickle.loads(pickle.dumps(kind("3 lines of a.jsonl")))
    assert (type(back), str(back)) == (kind, "3 lines of a.jsonl")


def test_check_raises_one_error_with_all_faults():
    errors.check([])
    errors.check(fault for fault in ())
    with pytest.raises(RequestError) as caught:
        errors.check(fault for fault in (PROCS, PAUSE))
    assert caught.value.faults == (PROCS, PAUSE)


@each_error
def test_errors_have_their_attributes_and_both_base_classes(error, fields, parent):
    assert isinstance(error, HyperplaneError)
    assert isinstance(error, parent)
    assert {name: getattr(error, name) for name in fields} == fields


@each_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_pickle_with_their_attributes(error, fields, parent, protocol):
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert {name: getattr(back, name) for name in fields} == fields
    assert str(pickle.loads(pickle.dumps(back))) == str(error)


@each_error
def test_errors_can_be_copied(error, fields, parent):
    for back in (copy.copy(error), copy.deepcopy(error)):
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_an_error_class_derived_by_another_package_pickles():
    error = _Strange("a", b="c")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.faults, back.b) == (_Strange, str(error), (PROCS,), "c")


class _Strange(RequestError):
    def __init__(self, a, *, b):
        super().__init__([PROCS])
        self.b = b


def test_the_text_of_a_fault_has_value_allowed_values_and_advice():
    assert str(PROCS) == "nprocs = 0: expected at least 1"
    assert str(PAUSE) == ("/etc/dask/site.yaml: memory.pause = 7: expected a fraction; say 0.8")


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        (RequestError, "in the request:"),
        (ConfigError, "in the configuration:"),
    ],
)
@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 fault "), (2, "2 faults "), (12, "12 faults ")]
)
def test_all_faults_are_shown_and_numbered(kind, title, count, words):
    lines = str(kind([PROCS] * count)).splitlines()
    assert lines[0] == words + title
    assert lines[1:] == [f"  {number}. {PROCS}" for number in range(1, count + 1)]


def test_the_text_of_an_unknown_name_has_the_nearest_and_all_names():
    text = "nproc=2: unknown argument of f; did you mean nprocs? expected one of nprocs"
    assert str(UNKNOWN) == text
    assert str(UnknownName("a", "2", "no argument", function="f")) == (
        "a=2: unknown argument of f; expected no argument"
    )


def test_check_raises_unknown_argument_with_all_faults():
    with pytest.raises(UnknownArgument) as caught:
        errors.check([PROCS, UNKNOWN])
    assert caught.value.faults == (PROCS, UNKNOWN)


def test_the_outcome_is_added_to_the_message():
    error = RequestError([PROCS])
    error.state("nothing was saved")
    assert str(error).startswith("1 fault in the request, nothing was saved:\n  1. nprocs")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_braces_in_a_fault_are_not_format_fields():
    fault = Fault("node_selector", "{'count': {}}", "text")
    assert "{'count': {}}" in str(RequestError([fault]))


def test_unknown_pool_names_all_pools_and_the_nearest():
    message = str(UnknownPool("16-17", ["16_16", "32_32"], ["16_16", "8_16"]))
    assert "pool = '16-17': expected one of 16_16, 32_32" in message
    assert message.endswith("did you mean 16_16 or 8_16?")
    assert "did you mean" not in str(UnknownPool("x", ["16_16"], []))


def test_does_not_fit_is_one_fault_about_the_worker():
    error = DoesNotFit("16_16", "20 cores", "15 cores", "ask for less")
    assert error.faults == (Fault("worker", "20 cores", "15 cores", "ask for less"),)


def test_a_configuration_without_faults_has_no_path():
    assert ConfigError([]).path == ""


def test_each_direct_subclass_has_a_built_in_base():
    files = Path(hyperplane.__file__).parent.rglob("*.py")
    sources = [text for file in files if "HyperplaneError" in (text := file.read_text())]
    nodes = [node for text in sources for node in ast.walk(ast.parse(text))]
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }
    direct = {name: names for name, names in bases.items() if "HyperplaneError" in names}
    assert {"RequestError", "DemoFailed", "ResultMismatch"} <= direct.keys()
    assert [name for name, names in direct.items() if not names & vars(builtins).keys()] == []


def test_missing_package_names_the_command_that_installs_it():
    assert "pip install 'hyperplane[plot]'" in str(MissingPackage("matplotlib", "plot"))


@pytest.mark.parametrize("kind", [EngineError, EngineUnavailable, StartFailed, StartTimeout])
def test_an_engine_error_names_the_engine_and_shows_its_log(kind):
    assert str(kind("local", "it broke")) == "engine local: it broke"
    assert re.fullmatch(
        "engine local: it broke\nlast lines of the log:\nA\nB",
        str(kind("local", "it broke", "A\nB")),
    )
