"""Private names of distributed's peer-to-peer shuffles; loads distributed, pandas and pyarrow."""

from __future__ import annotations

from typing import Any

from distributed.shuffle import _core, _merge, _rechunk, _shuffle
from distributed.shuffle._arrow import (
    buffers_to_table,
    convert_shards,
    deserialize_table,
    serialize_table,
)
from distributed.shuffle._core import id_from_key
from distributed.shuffle._rechunk import ArrayRechunkSpec, convert_chunk, split_axes
from distributed.shuffle._shuffle import split_by_partition, split_by_worker

__all__ = [
    "ArrayRechunkSpec",
    "buffers_to_table",
    "convert_chunk",
    "convert_shards",
    "deserialize_table",
    "id_from_key",
    "serialize_table",
    "set_shuffle_plugin",
    "split_axes",
    "split_by_partition",
    "split_by_worker",
]


def set_shuffle_plugin(plugin: Any) -> None:
    """Let the tasks of shuffles in this process use a plugin, without a worker."""
    modules: tuple[Any, ...] = (_core, _merge, _rechunk, _shuffle)
    for module in modules:
        module.get_worker_plugin = lambda: plugin
