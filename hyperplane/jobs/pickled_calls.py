"""Unpickle calls and results in job folders, also those that earlier versions have written."""

from __future__ import annotations

import importlib
import io
import pickle
from types import ModuleType
from typing import Any

_ARRAYS = "hyperplane.collections.arrays"
_BAGS = "hyperplane.collections.bags"
_CALCULATOR = "hyperplane.calculator"
_DEFINITION = "hyperplane.jobs.definition"
_FRAMES = "hyperplane.collections.frames"
_JOBS = "hyperplane.jobs"
_SHARDS = "hyperplane.shards"
_SIZING = "hyperplane.sizing"
_STORAGE = "hyperplane.storage"

#: Module and name of a public object in an earlier version -> its module and name now. Pickles
#: refer to functions and classes by module and name.
RENAMED = {
    (f"{_ARRAYS}.many", "open_zarr_many"): (f"{_ARRAYS}.open_zarr_many", "open_zarr_many"),
    (f"{_ARRAYS}.open_many", "open_zarr_many"): (f"{_ARRAYS}.open_zarr_many", "open_zarr_many"),
    (f"{_ARRAYS}.proposing", "propose_chunks"): (f"{_ARRAYS}.propose_chunks", "propose_chunks"),
    (f"{_ARRAYS}.rechunking", "rechunk"): (f"{_ARRAYS}.rechunk", "rechunk"),
    (f"{_BAGS}.count", "count_by"): (f"{_BAGS}.count_by", "count_by"),
    (f"{_BAGS}.frame", "to_dataframe"): (f"{_BAGS}.to_dataframe", "to_dataframe"),
    (f"{_BAGS}.read", "bad_records"): (f"{_BAGS}.read_records", "bad_records"),
    (f"{_BAGS}.read", "read_records"): (f"{_BAGS}.read_records", "read_records"),
    (f"{_FRAMES}.datetimes", "to_datetime"): (f"{_FRAMES}.to_datetime", "to_datetime"),
    (f"{_FRAMES}.duplicates", "drop_duplicates"): (f"{_FRAMES}.drop_duplicates", "drop_duplicates"),
    (f"{_FRAMES}.sort", "sort_values"): (f"{_FRAMES}.sort_values", "sort_values"),
    (f"{_FRAMES}.top_n", "top_n_per_group"): (f"{_FRAMES}.top_n_per_group", "top_n_per_group"),
    ("hyperplane.jobs.decorating", "job"): ("hyperplane.jobs.decorator", "job"),
    # Functions made by ``@job`` are pickled by value, with the globals that they use.
    ("hyperplane.jobs.decorating", "_check_call"): (
        "hyperplane.jobs.decorator",
        "_check_arguments",
    ),
    ("hyperplane.jobs.decorating", "_source_of"): ("hyperplane.jobs.decorator", "_read_source"),
    (f"{_JOBS}.listing", "list_jobs"): (f"{_JOBS}.job_list", "list_jobs"),
    (f"{_JOBS}.states", "Attempt"): (f"{_JOBS}.store.job_records", "Attempt"),
    (f"{_JOBS}.states", "Job"): (f"{_JOBS}.store.job_records", "Job"),
    (f"{_JOBS}.submitting", "Submitted"): (f"{_JOBS}.job_control", "Submitted"),
    (f"{_JOBS}.submitting", "cancel"): (f"{_JOBS}.job_control", "cancel"),
    (f"{_JOBS}.submitting", "resume"): (f"{_JOBS}.job_control", "resume"),
    (f"{_DEFINITION}.models", "Pipeline"): (f"{_DEFINITION}.pipeline", "Pipeline"),
    (f"{_DEFINITION}.models", "Resources"): (f"{_DEFINITION}.step", "Resources"),
    (f"{_DEFINITION}.models", "Step"): (f"{_DEFINITION}.step", "Step"),
    ("hyperplane.jobs.definition.reading", "read_pipeline"): (
        "hyperplane.jobs.definition.pipeline_file",
        "read_pipeline",
    ),
    ("hyperplane.errors.requests", "_rebuild"): ("hyperplane.core.errors.base", "_rebuild"),
    (f"{_SHARDS}.identity", "Shard"): (f"{_SHARDS}.current_shard", "Shard"),
    (f"{_SHARDS}.identity", "shard"): (f"{_SHARDS}.current_shard", "shard"),
    (f"{_SIZING}.advise", "Answer"): (f"{_SIZING}.recommend", "SizingAnswer"),
    (f"{_SIZING}.advise", "Comfort"): (f"{_SIZING}.recommend", "ComfortableSize"),
    (f"{_SIZING}.advise", "Option"): (f"{_SIZING}.recommend", "PoolOption"),
    (f"{_SIZING}.advise", "Question"): (f"{_SIZING}.recommend", "SizingQuestion"),
    (f"{_SIZING}.advice", "SizingAdvice"): (f"{_CALCULATOR}.advice", "SizingAdvice"),
    (f"{_SIZING}.calculator", "closest_pool"): (f"{_CALCULATOR}.size_cluster", "closest_pool"),
    (f"{_SIZING}.calculator", "fit_workers"): (f"{_CALCULATOR}.size_cluster", "fit_workers"),
    (f"{_SIZING}.calculator", "size_cluster"): (f"{_CALCULATOR}.size_cluster", "size_cluster"),
    (f"{_SIZING}.measure", "DataSize"): (f"{_CALCULATOR}.measure", "DataSize"),
    (f"{_SIZING}.measure", "Measured"): (f"{_CALCULATOR}.measure", "DataSize"),
    (f"{_STORAGE}.cleaning", "Cleaned"): (f"{_STORAGE}.cleanup", "CleanupReport"),
    (f"{_STORAGE}.cleaning", "clean"): (f"{_STORAGE}.cleanup", "clean"),
    (f"{_STORAGE}.shards", "missing_shards"): (f"{_STORAGE}.shard_saving", "missing_shards"),
}
#: Module in version 0.1.0 -> the module now, for modules that functions of ``@job`` use.
RENAMED_MODULES = {f"{_JOBS}.submitting": f"{_JOBS}.job_control"}


class OtherVersionError(pickle.UnpicklingError):
    """A pickle names an object that this version does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"it was written by another version of hyperplane and contains {name}, which this "
            "version does not have; submit the job again"
        )


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a global, by its present name if it was renamed."""
        if (module, name) == ("cloudpickle.cloudpickle", "subimport"):
            return _import_module
        module, name = RENAMED.get((module, name), (module, name))
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            if module.partition(".")[0] == "hyperplane":
                raise OtherVersionError(f"{module}.{name}") from error
            raise


def _import_module(name: str) -> ModuleType:
    """Return a module, by its present name if it was renamed."""
    return importlib.import_module(RENAMED_MODULES.get(name, name))


def unpickle(data: bytes) -> Any:
    """Return the object of a pickle in the user's own job folder.

    Raises
    ------
    OtherVersionError
        If it contains a lazy collection or another internal object of another version.
    """
    return _Unpickler(io.BytesIO(data)).load()
