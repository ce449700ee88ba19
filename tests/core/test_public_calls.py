"""Misspelled arguments of public functions, and the outcome in messages of RequestError."""

import asyncio
import inspect
import pickle
import pkgutil
import re
import traceback
import warnings
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import hyperplane
import hyperplane.jobs
from hyperplane.core import public_calls
from hyperplane.errors import (
    Fault,
    RequestError,
    UnknownArgument,
    UnknownKey,
    UnknownName,
    check,
)

#: A name that is unlike any argument of any function.
STRANGE = "zqx"
MODULES = [
    hyperplane,
    *filter(inspect.ismodule, (getattr(hyperplane, name) for name in dir(hyperplane))),
]
#: Classes that users do not create.
RESULTS = {
    "Attempt", "ClusterPlan", "Event", "Machine", "CleanupReport", "Job", "SaveResult",
    "ComputationUsage", "Forecast", "MeasuredAdvice", "RunComparison", "SizingAdvice",
    "Submitted", "TaskUsage", "WorkerUsage", "ModelServer", "OrcaContext", "PredictionResult",
    "ModelVersion", "Estimator", "TrainingResult", "AsynchronousTrainingResult", "RayWorker",
    "RunTimeline", "TaskGroupTimes", "WorkerTimeline", "Artifact",
}  # fmt: skip
REFERENCE = Path(hyperplane.__file__).parents[1] / "docs" / "reference"


def _is_result(target):
    is_class = inspect.isclass(target)
    of_errors = target in (Fault, UnknownKey, UnknownName, check) or (
        is_class and issubclass(target, BaseException)
    )
    return of_errors or (is_class and target.__name__ in RESULTS)


def _public():
    """Name -> public function, class or method."""
    found = {}
    for module in MODULES:
        for name in dir(module):
            target = getattr(module, name)
            if not callable(target):
                continue
            if not _is_result(target):
                found[f"{module.__name__}.{name}"] = target
            if inspect.isclass(target) and not issubclass(target, BaseException):
                found.update(_methods(f"{module.__name__}.{name}", target))
    return found


def _methods(name, target):
    for key, value in vars(target).items():
        of_class = isinstance(value, classmethod | staticmethod)
        if not key.startswith("_") and (inspect.isfunction(value) or of_class):
            method = getattr(target, key)
            if set(inspect.signature(method).parameters) - {"self"}:
                yield f"{name}.{key}", method


def _documented():
    """Functions and classes on the reference pages, without those that other packages create."""
    for page in sorted(REFERENCE.glob("*.md")):
        if page.name == "extend.md":
            continue
        module = ""
        for kind, name in re.findall(
            r"^\.\. (currentmodule|autofunction|autoclass):: (\S+)", page.read_text(), re.MULTILINE
        ):
            if kind == "currentmodule":
                module = name
                continue
            full = name if name.startswith("hyperplane.") else f"{module}.{name}"
            yield full, pkgutil.resolve_name(full)


PUBLIC = _public()
_KNOWN = {id(target) for target in PUBLIC.values()}
PUBLIC |= {
    name: target
    for name, target in _documented()
    if id(target) not in _KNOWN and not _is_result(target)
}
#: Arguments that a call needs before the function checks the other arguments.
NEEDED = {
    "hyperplane.load": {"url": "x.csv"},
    "hyperplane.save": {"obj": pd.DataFrame({"a": [1]}), "url": "x.csv"},
    "hyperplane.storage.clean": {"url": "x.csv"},
    "hyperplane.storage.missing_shards": {"url": "x.csv"},
    "hyperplane.array.open_zarr_many": {"urls": ["x.zarr"]},
    **{f"hyperplane.ml.read_{kind}": {"file_path": "x"} for kind in ("csv", "json", "parquet")},
    "hyperplane.quickstart": {"num_workers": 1, "size": "16_16"},
    "hyperplane.SizingAdvice.start": {"self": hyperplane.size_cluster("1GB")},
}


def _call(name, **arguments):
    target = PUBLIC[name]
    call_arguments = {**NEEDED.get(name, {}), **arguments}
    if "self" in inspect.signature(target).parameters:
        call_arguments.setdefault("self", None)
    answer = target(**call_arguments)
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def test_the_list_of_public_functions_is_complete():
    assert len(PUBLIC) > 60
    assert {
        "hyperplane.size_cluster",
        "hyperplane.save",
        "hyperplane.load",
        "hyperplane.MemoryPolicy",
        "hyperplane.bag.take",
        "hyperplane.dataframe.read",
        "hyperplane.jobs.submit",
        "hyperplane.jobs.JobHandle.wait",
        "hyperplane.notebook_common.checkjobs",
    } <= PUBLIC.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_argument_is_an_error_that_lists_the_arguments(name):
    with pytest.raises(UnknownArgument) as caught:
        _call(name, **{STRANGE: 1})
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, RequestError)
    message = str(caught.value)
    assert STRANGE in message
    known = [
        parameter
        for parameter, each in inspect.signature(PUBLIC[name]).parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and parameter not in ("self", "urls", "size", "num_workers", "function")
    ]
    assert [
        parameter for parameter in known if parameter not in message.partition(STRANGE)[2]
    ] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_misspelled_argument_is_an_error_that_proposes_the_right_one(name):
    slips = [
        (parameter, f"{parameter[:-2]}{parameter[-1]}")
        for parameter, each in inspect.signature(PUBLIC[name]).parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and len(parameter) > 4
    ]
    for right, slip in slips:
        with pytest.raises(UnknownArgument, match=rf"did you mean .*{right}"):
            _call(name, **{slip: 1})


@pytest.mark.parametrize("name", PUBLIC)
def test_the_decorator_preserves_signature_and_docstring(name):
    target = PUBLIC[name]
    assert inspect.getdoc(target)
    # The function of a class method, whose first argument is the class.
    inner = inspect.unwrap(getattr(target, "__func__", target))
    inner = inner.__get__(object()) if inspect.ismethod(target) else inner
    assert inspect.signature(target) == inspect.signature(inner)
    if inspect.isclass(target):
        assert list(inspect.signature(target).parameters)[:1] not in (["self"], ["args"])
    else:
        assert inspect.getdoc(target) == inspect.getdoc(inner)
        assert target.__name__ == inner.__name__


@pytest.mark.parametrize(
    ("name", "other", "ours"),
    [
        ("hyperplane.dataframe.read", "usecols", "columns"),
        ("hyperplane.dataframe.read", "blocksize", "partition_size"),
        ("hyperplane.shard_rows", "sep", "separator"),
        ("hyperplane.shard_rows", "path", "url"),
        ("hyperplane.dataframe.window_agg", "freq", "every"),
        ("hyperplane.plan_cluster", "n_workers", "num_workers"),
        ("hyperplane.initialize_cluster", "replac", "replace"),
    ],
)
def test_names_of_pandas_and_dask_arguments_propose_the_equivalent(name, other, ours):
    with pytest.raises(UnknownArgument, match=rf"did you mean {ours}\?"):
        PUBLIC[name](**{other: "x"})


def test_decorated_functions_and_classes_pickle():
    policy = hyperplane.MemoryPolicy(pause=0.85)
    for target in (hyperplane.size_cluster, hyperplane.Shard(1, 2), policy, hyperplane.jobs.submit):
        assert pickle.loads(pickle.dumps(target)) == target
    assert hyperplane.Shard(1, 2)._replace(idx=0) == hyperplane.Shard(idx=0, n=2)


def test_a_misspelled_field_of_a_step_proposes_the_right_one():
    with pytest.raises(UnknownArgument, match=r"depends_no.*did you mean depends_on\?"):
        hyperplane.jobs.Step(name="a", kind="command", argv=("ls",), depends_no=())


def test_unknown_arguments_and_other_faults_are_reported_together():
    with pytest.raises(UnknownArgument) as caught:
        hyperplane.plan_cluster(0, nproc=1)
    assert [fault.where for fault in caught.value.faults] == ["nproc", "num_workers"]
    assert "2 faults in the request, nothing was started:" in str(caught.value)


@pytest.mark.parametrize("value", ["sk-123456789", {"TOKEN": "sk-123456789"}, pd.DataFrame()])
def test_values_of_secret_names_and_large_values_are_shown_as_types(value):
    with pytest.raises(UnknownArgument) as caught:
        hyperplane.load("x.csv", tokn=value)
    assert f"tokn=<{type(value).__name__}>" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (hyperplane.dataframe.read, "path"),
        (hyperplane.dataframe.read, "connection_string"),
        (hyperplane.load, "ulr"),
        (hyperplane.ClusterRequest, "sas"),
        (hyperplane.jobs.Step, "web"),
        (hyperplane.jobs.Step, "tokn"),
    ],
)
@pytest.mark.parametrize(
    "text",
    ["https://me:hunter2@host/x.csv", "https://h/x?s=hunter2", "?sv=1&sig=hunter2", "k=hunter2"],
)
def test_texts_that_may_contain_a_secret_are_not_shown(call, name, text):
    arguments = {name: text} if call is not hyperplane.load else {"url": "x.csv", name: text}
    with pytest.raises(UnknownArgument) as caught:
        call(**arguments)
    assert f"{name} = " in str(caught.value) or f"{name}=<str>: " in str(caught.value)
    assert "hunter2" not in str(caught.value)


class _Unprintable(str):
    def __repr__(self):
        raise KeyError("no")


def test_a_value_whose_repr_fails_is_shown_as_its_type():
    with pytest.raises(UnknownArgument, match="dta=<_Unprintable>: unknown"):
        hyperplane.size_cluster("1GB", dta=_Unprintable("x"))


@pytest.mark.parametrize(
    "value", [10**5000, "é" * 500, None, float("nan")], ids=["large", "long", "None", "nan"]
)
def test_messages_with_extreme_values_are_short(value):
    with pytest.raises(UnknownArgument, match=r"^1 fault.*\n.*poool=") as caught:
        hyperplane.fit_workers("16_16", poool=value)
    assert len(str(caught.value)) < 300


def test_misspelled_arguments_are_refused_on_stores_that_accept_any_option():
    frame = pd.DataFrame({"a": [1]})
    with pytest.raises(UnknownArgument, match=r"mod='skip': unknown .* did you mean mode\?"):
        hyperplane.save(frame, "memory://calls/a.csv", mod="skip")
    with pytest.raises(UnknownArgument, match="did you mean trusted"):
        hyperplane.load("memory://calls/a.csv", trused=True)
    with pytest.raises(UnknownArgument, match="did you mean run"):
        hyperplane.storage.missing_shards("memory://calls/a.csv", runn="a")


def test_options_are_passed_to_the_file_system():
    frame = pd.DataFrame({"a": [1]})
    hyperplane.save(frame, "memory://calls/b.csv", skip_instance_cache=True, mode="overwrite")
    assert hyperplane.load("memory://calls/b.csv", skip_instance_cache=True).a.to_list() == [1]


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda: hyperplane.save({}, "x.csv", mode="never"), "nothing was saved"),
        (lambda: hyperplane.initialize_cluster(0), "nothing was started"),
        (lambda: hyperplane.plan_cluster(0), "nothing was started"),
        (lambda: hyperplane.size_cluster("1GB").start(timeout=-1), "nothing was started"),
        (lambda: hyperplane.start("plan"), "nothing was started"),
        (lambda: hyperplane.jobs.submit("x", name="?" * 99), "nothing was submitted"),
        (lambda: hyperplane.storage.clean("x.csv", dry_run=3), "nothing was removed"),
        (
            lambda: asyncio.run(hyperplane.notebook_common.submit_pipeline_job("?" * 99, "x")),
            "nothing was submitted",
        ),
    ],
)
def test_errors_state_the_outcome(call, outcome):
    with pytest.raises(RequestError) as caught:
        call()
    assert str(caught.value).partition("\n")[0].endswith(f" in the request, {outcome}:")
    back = pickle.loads(pickle.dumps(caught.value))
    assert (str(back), back.faults) == (str(caught.value), caught.value.faults)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hyperplane.dataframe.read("x.csv", format="cvs"),
        lambda: hyperplane.load(3),
        lambda: hyperplane.size_cluster("1GB", "dance"),
        lambda: hyperplane.MemoryPolicy(target=7),
        lambda: hyperplane.bag.read_records("x", format="cvs"),
        lambda: hyperplane.shard(5, 2),
    ],
)
def test_errors_of_calls_without_effects_state_no_outcome(call):
    with pytest.raises(RequestError) as caught:
        call()
    title = str(caught.value).partition("\n")[0]
    assert title in ("1 fault in the request:", "2 faults in the request:")


def test_the_outermost_call_states_the_outcome():
    @public_calls.check_call(outcome="nothing was printed")
    def outer():
        return hyperplane.plan_cluster(0)

    with pytest.raises(RequestError, match=r"^1 fault in the request, nothing was printed:\n"):
        outer()


def test_warnings_name_the_line_of_the_caller(tmp_path):
    columns = pd.MultiIndex.from_tuples([("v", "sum"), ("v", "mean")])
    frame = pd.DataFrame([[1, 2]], columns=columns)
    left = dd.from_pandas(pd.DataFrame({"k": [1]}))
    right = dd.from_pandas(pd.DataFrame({"k": ["a"]}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hyperplane.save(frame, tmp_path / "a.csv")
        with pytest.raises(RequestError):
            hyperplane.dataframe.join(left, right, "k")
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)] * len(caught)
    assert len(caught) >= 1


def test_arguments_that_have_no_position_are_named():
    @public_calls.check_call
    def fit(data, epochs=1, *, verbose=0): ...

    fit(1, 2)
    with pytest.raises(TypeError, match="fit takes by position: data, epochs; pass others by name"):
        fit(1, 2, 3)

    @public_calls.check_call
    def spread(*values): ...

    spread(1, 2, 3)


def test_a_traceback_ends_at_the_call_with_the_faults():
    with pytest.raises(RequestError) as caught:
        hyperplane.plan_cluster(num_workers=-1, nprocs="two")
    package = Path(hyperplane.__file__).parent
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if package in Path(frame.filename).parents] == [
        "wrapper"
    ]
    assert (
        caught.value.__cause__ is None or "pydantic" not in type(caught.value.__cause__).__module__
    )


def test_a_traceback_keeps_the_frames_of_a_callback_and_the_context():
    @public_calls.check_call(outcome="nothing was read")
    def read(callback):
        return callback()

    def use():
        return hyperplane.plan_cluster(num_workers=-1)

    try:
        {}["missing"]
    except KeyError:
        with pytest.raises(RequestError) as caught:
            read(use)
    assert "use" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__
