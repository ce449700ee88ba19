"""Workaround for slow messages of distributed 2026.8 with lists of Python objects.

Dask pickles each element of a list, tuple, set or dictionary that is sent for itself, so that
arrays in them are not copied. A partition of a bag with 100,000 texts is 100,000 frames, which take
a hundred times as long as one pickle, in the event loops of both processes
(https://github.com/dask/distributed/issues/6368). Collections of elements that Dask pickles in any
case are one pickle here. Processes without this workaround can read it.

Workers without this package receive this module by value, so it imports no other module of the
package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import cloudpickle
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import core
from distributed.protocol.serialize import (
    Pickled,
    Serialize,
    Serialized,
    ToPickle,
    dask_serialize,
)

#: Elements from which on a collection is one pickle.
LEAST_ELEMENTS = 10
_COLLECTIONS = (list, tuple, set, dict)
#: Levels of collections in collections that are searched for arrays.
_LEVELS = 100
#: Marks of Dask for parts of a message, which its own code replaces.
_MARKS = (Serialize, Serialized, ToPickle, Pickled)
_NAME, _MARK = "serialize_and_split", "hyperplane_original"


class ListMessages(WorkerPlugin):
    """Worker plugin that sends collections of Python objects as one pickle."""

    name = "hyperplane-list-messages"

    def setup(self, worker: Any) -> None:
        """Install it in the process of a worker."""
        del worker
        install_list_messages()


def install_list_messages() -> None:
    """Send collections of Python objects as one pickle, from this process."""
    serialize: Callable[..., Any] = vars(core)[_NAME]
    if hasattr(serialize, _MARK):
        return  # installed before, possibly by a copy of this module that was sent by value

    def serialize_whole(value: Any, *args: Any, **options: Any) -> Any:
        # Dask pickles a collection in one piece that is not marked, if its first element is no
        # array or the like.
        if type(value) is Serialize and has_only_pickles(value.data):
            with suppress(TypeError):
                header, frames = serialize(value.data, *args, **options)
                if header.get("serializer") != "error":
                    return header, frames
            # Dask's error of a single element has its type.
        return serialize(value, *args, **options)

    vars(serialize_whole)[_MARK] = serialize
    setattr(core, _NAME, serialize_whole)


def has_only_pickles(value: object) -> bool:
    """Return whether a value is a collection of ten or more elements that Dask pickles.

    Examples
    --------
    >>> has_only_pickles(["a"] * 100), has_only_pickles([b"a"] * 99 + [memoryview(b"a")])
    (True, False)
    """
    if type(value) not in _COLLECTIONS or not isinstance(value, Collection):
        return False
    if len(value) < LEAST_ELEMENTS:
        return False
    elements: Iterable[Any] = value.values() if isinstance(value, dict) else value
    kinds = set(map(type, elements))
    if any(issubclass(kind, _MARKS) for kind in kinds):
        return False
    # Dask pickles elements of such modules by value, but not elements of elements.
    modules = cloudpickle.list_registry_pickle_by_value()
    if modules and any(getattr(each, "__module__", None) in modules for each in elements):
        return False
    for _ in range(_LEVELS):
        if any(map(_has_serializer, kinds)):
            return False
        if kinds.isdisjoint(_COLLECTIONS):
            return True
        # Dask looks at the first element of each collection.
        elements = [
            next(iter(each.values() if type(each) is dict else each))
            for each in elements
            if type(each) in _COLLECTIONS and each
        ]
        kinds = set(map(type, elements))
    return False


def _has_serializer(kind: type) -> bool:
    """Return whether Dask has a serializer for a type, as for arrays."""
    try:
        dask_serialize.dispatch(kind)
    except TypeError:
        return False
    return True
