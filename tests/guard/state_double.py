"""Objects with the attributes that a test gives them, in place of those of Dask's scheduler."""

from __future__ import annotations

from types import SimpleNamespace


class StateDouble(SimpleNamespace):
    """Attributes of an object that can be in a set."""

    __hash__ = object.__hash__
