"""Readers return the values of files with any kind of column, or raise a hyperplane error."""

from __future__ import annotations

import json
import math
from pathlib import Path

import dask
import dask.bag as db
import pandas as pd
import pytest
from any_tables import KINDS, ODD, QUICK, parts, plain, raw, same_kinds, values_of
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.errors import HyperplaneError
from hyperplane.formats import partition_sizes, text_samples


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


#: Decimals and dates are read as floats and times, as the documentation says.
OTHERWISE = {"arrow decimal", "arrow date", "arrow time", "money", "dates", "clocks"}
REFUSED = {"period", "week", "interval", "record", "drifting record"}
PARQUET = tuple(kind for kind in KINDS if kind not in OTHERWISE | {"mixed", "complex", "sparse"})
NUMBERS = [0, 1, -1, ODD, 2**63 - 1, 2**64 - 1, 2**70, 1.5, -0.0, 1e300]
TEXTS = ["", "a", "1", "true", "ü\u2028", "2024-01-01"]
SCALARS = st.sampled_from([None, True, False, *NUMBERS, *TEXTS])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", ""]), inner, max_size=2)
    ),
    max_leaves=4,
)
ONE_KIND = st.sampled_from(
    [
        st.none() | st.sampled_from([1, ODD, -(2**63)]),
        st.none() | st.sampled_from([1.5, -0.0, 1]),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["", "a", "1"]),
        st.none() | st.lists(st.sampled_from([1, ODD]), max_size=2),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, 2]), max_size=2),
        VALUES,
    ]
)


@st.composite
def records(draw):
    """Records of a few files."""
    names = draw(st.lists(st.sampled_from(["a", "", "*", "^x$", "x.y"]), min_size=1, unique=True))
    fields = {name: draw(ONE_KIND) for name in names}
    row = st.fixed_dictionaries({}, optional=fields)
    return draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=3)), names


def as_held(value, column):
    """Return a value as its column holds it; text columns hold JSON of other values."""
    if isinstance(column.dtype, pd.StringDtype) and not isinstance(value, (str, type(None))):
        return plain(json.dumps(value, ensure_ascii=False))
    return plain(value)


@settings(QUICK, max_examples=scaled(20, 400))
@given(case=records(), head=st.sampled_from([40, 10**6]), size=st.sampled_from([1, 10**6]))
def test_json_lines(tmp_path_factory, case, head, size):
    files, names = case
    folder = tmp_path_factory.mktemp("any")
    every = [record for file in files for record in file]
    for number, file in enumerate(files):
        lines = "".join(json.dumps(record) + "\n" for record in file)
        (folder / f"{number}.jsonl").write_text(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_samples, "HEAD", head)
        patch.setattr(text_samples, "EXCERPT", 0)
        try:
            found = hyperplane.dataframe.read(folder, partition_size=size)
            computed = found.compute()
            shares = [hyperplane.shard_rows(folder, 2, index) for index in range(2)]
        except HyperplaneError as error:
            # The samples cover all values, and each has a type, so reading must not fail.
            if head > 40 and any(every):
                raise AssertionError("refused") from error
            event("refused")
            return
    event("read")
    assert computed.dtypes.equals(found.dtypes)
    for name in names:
        if name in computed.columns:
            held = [as_held(record.get(name), computed[name]) for record in every]
            assert values_of([computed], name) == held, name
            assert values_of(shares, name) == held, name
            there = [record.get(name) for record in every]
            if not isinstance(computed[name].dtype, pd.StringDtype):
                assert same_kinds(raw([computed], name), there), name
                assert same_kinds(raw(shares, name), there), name
        else:
            assert all(record.get(name) is None for record in every), name


@settings(QUICK, max_examples=scaled(15, 300))
@given(
    case=parts(kinds=PARQUET, names=("a", "b b", "1", "*", "^x$", "x.y"), most=3),
    lacking=st.integers(0, 3),
)
def test_parquet(tmp_path_factory, case, lacking):
    frames, kinds = case
    absent = lacking < len(frames) and len(kinds[0]) > 1
    if absent:
        frames[lacking] = frames[lacking].iloc[:, 1:]
    folder = tmp_path_factory.mktemp("any")
    try:
        for number, frame in enumerate(frames):
            hyperplane.save(frame, folder / f"{number}.parquet")
        computed = hyperplane.dataframe.read(folder, schema="union").compute()
        # shard_rows requires the same columns in all files.
        shares = (
            []
            if absent and len(frames) > 1
            else [hyperplane.shard_rows(sorted(folder.iterdir()), 1, 0)]
        )
    except HyperplaneError as error:
        used = {kind for here in kinds for kind in here.values()}
        drifts = any(len({here[name] for here in kinds}) > 1 for name in kinds[0])
        offset = any("+05:45" in kind for kind in used)
        if not drifts and not offset and not used & REFUSED:
            raise AssertionError("refused") from error
        event("refused")
        return
    event("read")
    for name in kinds[0]:
        if {here[name] for here in kinds} & {"object nothing"}:
            continue
        if name not in computed.columns:
            assert absent
            assert len(frames) == 1
            continue
        held = [
            value
            for frame in frames
            for value in (values_of([frame], name) if name in frame else [None] * len(frame))
        ]
        assert values_of([computed], name) == held, name
        assert not shares or values_of(shares, name) == held, name
        there = [value for frame in frames if name in frame for value in raw([frame], name)]
        assert same_kinds(raw([computed], name), there), name
        assert not shares or same_kinds(raw(shares, name), there), name


@settings(QUICK, max_examples=scaled(15, 300))
@given(
    items=st.lists(st.fixed_dictionaries({"a": VALUES, "b": ONE_KIND.flatmap(lambda kind: kind)}))
    | st.lists(VALUES, max_size=4),
    form=st.sampled_from(["jsonl", "parquet", "avro", "orc"]),
)
def test_bags(tmp_path_factory, items, form):
    folder = Path(tmp_path_factory.mktemp("any")) / "bag"
    try:
        hyperplane.save(db.from_sequence(items, npartitions=2), folder, format=form)
        computed = hyperplane.load(folder).compute()
    except HyperplaneError:
        if form == "jsonl":
            raise
        event("refused")
        return
    event("came back")
    assert list(map(plain, computed)) == list(map(plain, items))
    assert same_kinds(computed, items)
    if form == "jsonl" and items and all(isinstance(item, dict) for item in items):
        again = hyperplane.bag.read_records(folder, format="json").compute()
        assert list(map(plain, again)) == list(map(plain, items))
        try:
            frame = hyperplane.bag.to_dataframe(hyperplane.bag.read_records(folder, format="json"))
            rows = frame.compute()
        except HyperplaneError:
            return
        for name in rows.columns:
            held = [item.get(name) for item in items]
            if not str(rows[name].dtype).startswith("datetime"):
                assert values_of([rows], name) == [plain(one) for one in held], name
    assert not any(isinstance(item, float) and math.isnan(item) for item in items)
