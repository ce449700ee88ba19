"""A ``tf.data.Dataset`` of the client as a graph that ranks read; what such a graph cannot have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need

#: Operations that call a function of the client's Python process.
_PYTHON = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
_BATCHES = ("BatchDataset", "BatchDatasetV2", "ParallelBatchDataset", "PaddedBatchDataset",
            "PaddedBatchDatasetV2", "MapAndBatchDataset", "GroupByWindowDataset",
            "RebatchDatasetV2")  # fmt: skip
#: Operations whose elements are those of the datasets that their function returns.
_FLAT = ("FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDatasetV4")
#: Largest message of the format that TensorFlow uses for graphs.
_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class DatasetGraph:
    """A dataset as bytes.

    Parameters
    ----------
    graph : bytes
        Its graph, with the arrays that it contains.
    spec : object
        Types and shapes of its elements.
    is_batched : bool
        Whether its elements are batches.
    """

    graph: bytes
    spec: Any
    is_batched: bool

    def load(self) -> Any:
        """Return the dataset in this process."""
        tf: Any = need("tensorflow", "tensorflow")
        variant = tf.raw_ops.DatasetFromGraph(graph_def=self.graph)
        return tf.data.experimental.from_variant(variant, structure=self.spec)


def is_dataset(value: Any) -> bool:
    """Return whether a value is a ``tf.data.Dataset``, without importing TensorFlow."""
    names = {(base.__module__.partition(".")[0], base.__name__) for base in type(value).__mro__}
    return ("tensorflow", "DatasetV2") in names


def pack_dataset(dataset: Any, where: str) -> tuple[DatasetGraph | None, list[Fault]]:
    """Return a dataset as bytes, or the faults of operations that other processes cannot run."""
    tf: Any = need("tensorflow", "tensorflow")
    advice = (
        "pass a function data_creator(config, batch_size) that returns the dataset: it may use any "
        "operation, because each rank calls it"
    )
    try:
        graph = dataset._as_serialized_graph().numpy()
    except (ValueError, tf.errors.OpError) as error:
        given = f"a tf.data.Dataset that has no graph ({str(error).splitlines()[0][:200]})"
        return None, [Fault(where, given, "a dataset without tables and variables", advice)]
    definition = tf.compat.v1.GraphDef.FromString(graph)
    nodes = list(_list_nodes(definition))
    operations = {node.op for node in nodes}
    if "GeneratorDataset" in operations:
        given = "a tf.data.Dataset of from_generator, which calls Python in this process"
        return None, [Fault(where, given, "a dataset of TensorFlow operations", advice)]
    if operations & _PYTHON:
        given = "a tf.data.Dataset with py_function or numpy_function, which call this process"
        return None, [Fault(where, given, "a dataset of TensorFlow operations", advice)]
    if _shuffles_differently(definition):
        given = "a tf.data.Dataset with shuffle(...), which would differ between ranks"
        allowed = "shuffle(..., seed=0, reshuffle_each_iteration=False)"
        return None, [Fault(where, given, allowed, advice)]
    if len(graph) > _MAX_BYTES:
        return None, [Fault(where, f"a dataset of {len(graph)} bytes", "less than 2 GB", advice)]
    is_batched = _is_batched(definition.node, definition.library.function)
    return DatasetGraph(graph, dataset.element_spec, is_batched), []


def pack_checked(dataset: Any, where: str) -> DatasetGraph:
    """Return a dataset as bytes; raise RequestError for operations that ranks cannot run."""
    graph, faults = pack_dataset(dataset, where)
    check(faults)
    return cast("DatasetGraph", graph)


def _is_batched(nodes: Sequence[Any], functions: Sequence[Any]) -> bool:
    """Return whether the last operation that joins or divides rows joins them to batches.

    The nodes are followed from the result to the input of each operation; of several inputs, such
    as those of ``enumerate``, to the last one.
    """
    by_name = {node.name: node for node in nodes}
    node = next((each for each in reversed(nodes) if "Dataset" in each.op), None)
    while node is not None:
        if node.op in _BATCHES:
            return True
        if node.op == "UnbatchDataset":
            return False
        if node.op in _FLAT:
            name = node.attr["f"].func.name
            body = next(each for each in functions if each.signature.name == name)
            return _is_batched(body.node_def, functions)
        found = [by_name.get(name.partition(":")[0]) for name in node.input]
        inputs = [each for each in found if each is not None and "Dataset" in each.op]
        node = inputs[-1] if inputs else None
    return False


def _list_nodes(definition: Any) -> Iterator[Any]:
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _shuffles_differently(definition: Any) -> bool:
    """Return whether a shuffle of the main graph has another order in each process.

    A graph keeps the seed of a shuffle, but not that of the next iterations.
    """
    tf: Any = need("tensorflow", "tensorflow")
    nodes = {node.name: node for node in definition.node}
    for node in definition.node:
        if node.op in ("ShuffleDatasetV3", "ShuffleDataset", "ShuffleAndRepeatDatasetV2"):
            seeds = [nodes.get(name.partition(":")[0]) for name in node.input[2:4]]
            values = [
                np.asarray(tf.make_ndarray(seed.attr["value"].tensor)).item()
                for seed in seeds
                if seed is not None and seed.op == "Const"
            ]
            if values == [0, 0] or node.attr["reshuffle_each_iteration"].b:
                return True
    return False
