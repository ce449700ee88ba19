"""Any table is loaded unchanged from any format, or an error gives the reason."""

from __future__ import annotations

import itertools

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
from any_tables import QUICK, parts, raw, same_kinds, values_of
from hypothesis import event, given, settings
from hypothesis import strategies as st
from saving_cases import in_this_thread
from scale import scaled

import hyperplane
from hyperplane.errors import HyperplaneError

_here = pytest.fixture(autouse=True)(in_this_thread)

_NUMBERS = itertools.count()
WAYS = ["at once", "append", "shard"]
FORMATS = ["parquet", "csv", "tsv", "jsonl", "avro"]
#: Kinds that a format does not support; all others must be loaded unchanged.
NO_FORM = {
    "parquet": {"mixed", "complex"},
    "csv": {"mixed", "complex", "interval", "arrow binary", "bytes", "arrow list", "list"}
    | {"list of text", "record", "drifting record"},
    "jsonl": {"mixed", "complex", "interval", "arrow binary", "bytes", "infinite"},
    "avro": {
        "mixed",
        "complex",
        "interval",
        "period",
        "week",
        "uint64",
        "UInt64",
        "drifting record",
    },
}
NO_FORM["tsv"] = NO_FORM["csv"]


class NumberedPartitions:
    """Return partitions by number, with a token that does not depend on their values.

    Dask gives Arrow dictionary arrays with equal codes the same token.
    """

    def __init__(self, frames):
        self.frames, self.name = frames, next(_NUMBERS)

    def __call__(self, number):
        return self.frames[number]

    def __dask_tokenize__(self):
        return ("any", self.name)


def collection(frames):
    return dd.from_map(
        NumberedPartitions(frames), list(range(len(frames))), meta=frames[0].iloc[:0]
    )


def saved(frames, url, form, way):
    """Save frames as the parts of one folder, in one of several ways."""
    if way == "at once":
        hyperplane.save(collection(frames), url, format=form)
    elif way == "append":
        for frame in frames:
            hyperplane.save(collection([frame]), url, format=form, mode="append")
    else:
        for index, frame in enumerate(frames):
            hyperplane.save(frame, url, format=form, shard=(index, len(frames)))


def are_floats_together(frames, name):
    """Return whether pandas can only hold the numbers of all parts as floats.

    That is so if some are floats or missing, or if some are uint64 and some signed.
    """
    kinds = {str(frame[name].dtype).lower().partition("[")[0] for frame in frames}
    signed = kinds & {"int8", "int16", "int32", "int64"}
    return any(kind.startswith(("float", "double")) for kind in kinds) or (
        "uint64" in kinds and signed
    )


def check(frames, loaded):
    """Check that the loaded values and types equal the saved ones."""
    pieces = dask.compute(*loaded.to_delayed())
    whole = loaded.compute()
    for piece in [*pieces, whole]:
        assert list(piece.columns) == list(loaded.columns)
        for name, dtype in loaded.dtypes.items():
            found = piece[name].dtype
            both = isinstance(found, pd.CategoricalDtype), isinstance(dtype, pd.CategoricalDtype)
            assert all(both) if any(both) else found == dtype, (name, found, dtype)
    for name in frames[0].columns:
        held = values_of(frames, name)
        assert values_of(pieces, name) == held, name
        assert values_of([whole], name) == held, name
        assert are_floats_together(frames, name) or same_kinds(
            raw([whole], name), raw(frames, name)
        ), name


def may_be_refused(kinds, form):
    """Return whether a format does not support a kind or name, or the parts have several types."""
    used = {kind for here in kinds for kind in here.values()}
    drifts = any(len({here[name] for here in kinds}) > 1 for name in kinds[0])
    names = [name for name in kinds[0] if not (name.isidentifier() and name.isascii())]
    # CSV with one column cannot tell missing values from empty text.
    single = form in ("csv", "tsv") and len(kinds[0]) == 1
    return drifts or single or (form == "avro" and names) or used & NO_FORM[form]


@pytest.mark.slow
@settings(QUICK, max_examples=scaled(20, 1000))
@given(
    case=parts(), form=st.sampled_from(FORMATS), way=st.sampled_from(["at once", "append", "shard"])
)
def test_parts_come_back_or_are_refused(case, form, way):
    frames, kinds = case
    url = "memory://any/out"
    try:
        try:
            saved(frames, url, form, way)
            loaded = hyperplane.load(url)
            check(frames, loaded)
            event("came back")
        except HyperplaneError as error:
            if not may_be_refused(kinds, form):
                raise AssertionError("refused") from error
            event("refused")
    finally:
        fsspec.filesystem("memory").store.clear()


@settings(QUICK, max_examples=scaled(15, 100))
@given(case=parts(most=1, drift=False), form=st.sampled_from(["parquet", "avro", "jsonl"]))
def test_a_file_comes_back_or_is_refused(case, form):
    (frame,), (kinds,) = case
    url = f"memory://any/one.{form}"
    try:
        hyperplane.save(frame, url)
        check_text = form == "jsonl"
        made = hyperplane.load(url)
        for name in frame.columns:
            if not check_text:
                assert values_of([made], name) == values_of([frame], name), name
                assert same_kinds(raw([made], name), raw([frame], name)), name
    except HyperplaneError as error:
        if not may_be_refused([kinds], form):
            raise AssertionError("refused") from error
    finally:
        fsspec.filesystem("memory").store.clear()
