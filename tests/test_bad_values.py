"""The calls of the tests of bad values are valid, and cover every public function."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bad_calls import ALL
from bad_values import TEXTS, Call, check, fault_of, good_files, nothing_starts

import hyperplane
from hyperplane import notebook_common
from hyperplane.core import units
from hyperplane.core.optional import is_installed
from hyperplane.errors import EngineError, JobError, JobFailed, ReadError, RequestError

__all__ = ["good_files", "nothing_starts"]

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
#: Errors of valid calls where nothing can be started, or the job has failed.
EXPECTED_ERRORS = {
    **dict.fromkeys(
        (
            "initialize_cluster",
            "lab.start_cluster",
            "quickstart",
            "quickstart_dask",
            "start",
            "SizingAdvice.start",
            "initialize_ray_cluster",
            "quickstart_ray",
            "init_spark",
        ),
        (EngineError, "nothing is started here"),
    ),
    **dict.fromkeys(("get_cluster", "get_dask_cluster"), (EngineError, "no cluster 'x'")),
    "get_ray_cluster": (EngineError, "no Ray cluster is running"),
    "Forecast.advise": (RequestError, "a forecast that is not refused"),
    "JobHandle.result": (JobFailed, "failed: test"),
    "download_artifact": (JobError, "no artifact named 'a.csv'"),
    "read_search": (RequestError, "tune has started"),
    **dict.fromkeys(
        (
            "parallel",
            "gang",
            "train_with_parameter_server",
            "train_with_averaged_weights",
            "train_pipeline",
            "train_column_parts",
        ),
        (RequestError, "initialize_cluster"),
    ),
    "Estimator.load_keras_model": (ReadError, "missing.keras"),
    "Estimator.from_graph": (RequestError, "TensorFlow 1"),
    "Estimator.latest_checkpoint": (RequestError, "last.ckpt"),
    "XShards.load_pickle": (RequestError, "x.pickles"),
    "init_orca_context": (EngineError, "nothing is started here"),
    "graphql_operation": (RequestError, "start 'hyperplane ui'"),
}
EXPECTED_ERRORS["from_ray_data"] = (RequestError, r"a ray\.data\.Dataset")
EXPECTED_ERRORS["to_ray_data"] = (EngineError, "initialize_ray_cluster")
if not is_installed("ray"):
    EXPECTED_ERRORS["to_ray_data"] = (hyperplane.MissingPackage, "ray")
EXPECTED_ERRORS["from_spark"] = (RequestError, r"a pyspark\.sql\.DataFrame")
EXPECTED_ERRORS["to_spark"] = (EngineError, "init_spark")
if not is_installed("pyspark"):
    EXPECTED_ERRORS["to_spark"] = (hyperplane.MissingPackage, "spark")
if not is_installed("torch"):
    EXPECTED_ERRORS["Estimator.from_torch"] = (hyperplane.MissingPackage, "torch")
    EXPECTED_ERRORS |= {
        f"TorchEstimator.{name}": (hyperplane.MissingPackage, "torch")
        for name in ("predict", "save", "save_checkpoint")
    }
EXPECTED_ERRORS |= {
    **{
        f"{each}.{name}": (RequestError, "initialize_cluster")
        for each in ("TorchEstimator", "KerasEstimator")
        for name in ("fit", "evaluate")
    },
    "KerasEstimator.predict": (RequestError, "initialize_cluster"),
    **dict.fromkeys(
        ("TorchEstimator.load", "TorchEstimator.load_checkpoint"), (RequestError, "missing.pt")
    ),
    "TorchEstimator.load_orca_checkpoint": (RequestError, "with checkpoints"),
    **dict.fromkeys(
        ("KerasEstimator.load", "KerasEstimator.load_keras_weights"), (ReadError, "missing")
    ),
    "KerasEstimator.load_orca_checkpoint": (RequestError, "checkpoint"),
}
#: Public names that take no arguments from callers.
WITHOUT_ARGUMENTS = (
    "hyperplane.pools", "hyperplane.utils.is_jhub", "hyperplane.utils.SlackHelper",
    "hyperplane.notebook_common.get_current_job_output", "hyperplane.orca.OrcaContext",
    "hyperplane.orca.stop_orca_context",
    "hyperplane.notebook_common.get_previous_job_runs",
    "hyperplane.ray_common.find_ray_workers", "hyperplane.spark.stop_spark",
)  # fmt: skip
#: Objects that the package creates and callers only read.
CREATED_BY_PACKAGE = (
    "hyperplane.ClusterPlan", "hyperplane.Fault", "hyperplane.Forecast", "hyperplane.Shard",
    "hyperplane.ShardPlan",
    "hyperplane.MeasuredAdvice", "hyperplane.SizingAdvice",
    "hyperplane.errors.UnknownKey",
    "hyperplane.errors.UnknownName",
    "hyperplane.asl.commands.Command", "hyperplane.asl.events.Event",
    "hyperplane.asl.reading.Machine", "hyperplane.jobs.Artifact",
    "hyperplane.jobs.Attempt", "hyperplane.jobs.Job",
    "hyperplane.jobs.Submitted", "hyperplane.storage.CleanupReport",
    "hyperplane.storage.SaveResult", "hyperplane.errors.check", "hyperplane.ml.SearchResult",
    "hyperplane.ml.ModelServer", "hyperplane.ml.Trial", "hyperplane.ml.ModelVersion",
    "hyperplane.ml.PredictionResult", "hyperplane.ml.Estimator", "hyperplane.ml.TrainingResult",
    "hyperplane.ml.AsynchronousTrainingResult", "hyperplane.ray_common.RayWorker",
    "hyperplane.history.RunRecord", "hyperplane.history.PlanSummary",
    "hyperplane.history.WorkerUsage", "hyperplane.history.TaskUsage",
    "hyperplane.history.ComputationUsage", "hyperplane.history.RunComparison",
    "hyperplane.history.RunTimeline", "hyperplane.history.TaskGroupTimes",
    "hyperplane.history.WorkerTimeline",
)  # fmt: skip
#: Modules without functions to check: programs, modules that are not provided, the configuration,
#: which is not on a reference page.
OTHERS = {"hyperplane.cli", "hyperplane.config", "hyperplane.hyper_nlp"}


@pytest.mark.usefixtures("nothing_starts")
def test_valid_calls_return_or_raise_the_expected_error() -> None:
    # Otherwise every value would be refused, and the tests of bad values would show nothing.
    for name, call in ALL.items():
        if name in EXPECTED_ERRORS:
            kind, words = EXPECTED_ERRORS[name]
            with pytest.raises(kind, match=words):
                call.answer(call.arguments())
        else:
            call.answer(call.arguments())


@pytest.mark.usefixtures("nothing_starts")
def test_fault_of_detects_foreign_errors_and_changed_files() -> None:
    def foreign(value: Any) -> None:
        raise KeyError(value)

    def writing(value: Any) -> None:
        Path("left").write_text("x")
        raise hyperplane.DataError("a", "b")

    assert "KeyError" in fault_of(Call(foreign, {}), {"value": 1})
    assert "was refused, and changed ['./left']" in fault_of(Call(writing, {}), {"value": 1})
    with pytest.raises(AssertionError, match="3 calls"):
        check("foreign", Call(foreign, {}), 3)


def public_modules() -> Iterator[ModuleType]:
    """Modules of hyperplane with __all__, except those of programs."""
    yield hyperplane
    for info in pkgutil.iter_modules(hyperplane.__path__, "hyperplane."):
        if info.name not in OTHERS:
            module = importlib.import_module(info.name)
            if hasattr(module, "__all__"):
                yield module


def public_names() -> Iterator[str]:
    """Functions and classes of public modules and of the reference pages."""
    for module in public_modules():
        yield from (f"{module.__name__}.{name}" for name in module.__all__)
    for page in REFERENCE.glob("*.md"):
        if page.name == "extend.md":  # the protocols of classes that other packages have
            continue
        inside = ""
        for kind, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", page.read_text(), re.MULTILINE):
            if kind in {"currentmodule", "automodule"}:
                inside = name
            elif kind in {"autofunction", "autoclass"}:
                yield name if name.startswith("hyperplane.") else f"{inside}.{name}"


def of_name(name: str) -> Any:
    above, _, last = name.rpartition(".")
    return getattr(importlib.import_module(above), last)


def public_callables() -> Iterator[tuple[str, Any]]:
    """Functions, classes, and methods with arguments."""
    for name in dict.fromkeys(public_names()):
        target = of_name(name)
        if inspect.isfunction(target):
            yield name, target
        elif inspect.isclass(target) and not issubclass(target, Exception):
            yield name, target
            for method, value in vars(target).items():
                inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if inspect.isfunction(inner) and not method.startswith("_"):
                    parameters = inspect.signature(getattr(target, method)).parameters
                    if set(parameters) - {"self"}:
                        yield f"{name}.{method}", inner


def uncalled() -> list[str]:
    """Names of public callables that no test calls."""
    called = [call.public for call in ALL.values()]
    called += map(of_name, (*WITHOUT_ARGUMENTS, *CREATED_BY_PACKAGE))
    known = {getattr(each, "__func__", each) for each in called}
    return [name for name, value in public_callables() if value not in known]


def test_every_public_function_has_a_valid_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({id(value) for _, value in public_callables()}) > 70
    assert uncalled() == []

    def new(value: int) -> None:
        """Nothing."""

    monkeypatch.setattr(notebook_common, "new", new, raising=False)
    monkeypatch.setattr(notebook_common, "__all__", [*notebook_common.__all__, "new"])
    monkeypatch.setattr(hyperplane.SizingAdvice, "new", new, raising=False)
    missing = {"hyperplane.notebook_common.new", "hyperplane.SizingAdvice.new"}
    assert missing <= set(uncalled())


def test_odd_texts_are_memory_sizes_or_value_errors() -> None:
    for value in (*TEXTS, "1e400GB", "-1GB", "1" * 400 + "GB"):
        if isinstance(value, str):
            try:
                assert units.parse_bytes(value) >= 0
            except ValueError as error:
                assert "memory size" in str(error)  # noqa: PT017


def test_odd_values_are_durations_or_value_errors() -> None:
    for value in (*TEXTS, True, None, [], 1j, "1_6s", "s", ".", "-1s", "1 fortnight", "1h1m"):
        try:
            assert units.parse_seconds(value) >= 0
            assert value in {"1" * 5000, "1e999", "1s", "1h"}
        except ValueError as error:
            assert "not a duration" in str(error)  # noqa: PT017
