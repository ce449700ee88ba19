"""What each format of tables does for ``save`` and ``load``."""

from __future__ import annotations

import itertools
import re

import dask
import dask.bag as db
import dask.dataframe as dd
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from any_tables import KINDS, QUICK, parts, raw, same_kinds, series, values_of
from hypothesis import event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from saving_cases import parts_of
from scale import scaled

import hyperplane
from hyperplane.errors import DataError, HyperplaneError, RequestError, WrongType
from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead, SupportsSave, SupportsSaveRecords

_NUMBERS = itertools.count()
ROWS = pd.DataFrame({"n": [3, 1, 2, 5], "x": [0.5, 1.0, 2.5, 4.0], "s": ["a", "b c", "ü,b", 'q"']})


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


def column(kind, rows):
    """Return a column with the values of a kind, repeated up to a number of rows."""
    values, dtype = KINDS[kind]
    return series(list(itertools.islice(itertools.cycle(values), rows)), dtype)


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
    """Return whether pandas converts the numbers of all parts to floats when concatenated.

    It does if some are floats or missing, or if some are uint64 and others signed.
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
            actual = piece[name].dtype
            both = isinstance(actual, pd.CategoricalDtype), isinstance(dtype, pd.CategoricalDtype)
            assert all(both) if any(both) else actual == dtype, (name, actual, dtype)
    for name in frames[0].columns:
        expected = values_of(frames, name)
        assert values_of(pieces, name) == expected, name
        assert values_of([whole], name) == expected, name
        assert are_floats_together(frames, name) or same_kinds(
            raw([whole], name), raw(frames, name)
        ), name


class SaveContract:
    """Tests that each format passes; a subclass names the format and what it refuses."""

    #: The format.
    name: str
    #: Kinds of :data:`any_tables.KINDS` that cannot be saved.
    refused: frozenset[str] = frozenset()
    #: Whether a single file has the types of its columns.
    has_types = True

    @pytest.fixture(autouse=True)
    def _clear_memory(self):
        yield
        fsspec.filesystem("memory").store.clear()

    def read_with_another_library(self, path):
        """Read a file with the library that users of the format know."""
        raise NotImplementedError

    def is_name(self, name):
        """Return whether a column may have a name."""
        return True

    def may_be_refused(self, kinds):
        """Return whether a kind or name is refused, or the parts have different types."""
        used = {kind for part_kinds in kinds for kind in part_kinds.values()}
        drifts = any(len({part_kinds[name] for part_kinds in kinds}) > 1 for name in kinds[0])
        return drifts or used & self.refused or not all(map(self.is_name, kinds[0]))

    @property
    def suffix(self):
        return registry.load(self.name).saved_suffixes[0]

    def test_the_class_has_the_interfaces(self):
        form = registry.load(self.name)
        assert form.name == self.name
        assert isinstance(form, SupportsSave)

    # One output for all kinds at small scale, one for each kind at full scale.
    @pytest.mark.parametrize("kinds", scaled([tuple(KINDS)], list(zip(KINDS))))
    def test_columns_are_restored_or_named(self, kinds, tmp_path):
        restored = [kind for kind in kinds if kind not in self.refused]
        for kind in set(kinds).difference(restored):
            frame = pd.DataFrame({"odd": column(kind, len(KINDS[kind][0]))})
            with pytest.raises(DataError) as caught:
                hyperplane.save(collection([frame]), tmp_path / "refused", format=self.name)
            assert caught.value.column == "odd", kind
            assert not (tmp_path / "refused").exists()
        if restored:
            rows = max(len(KINDS[kind][0]) for kind in restored)
            columns = {re.sub(r"\W", "_", kind): column(kind, rows) for kind in restored}
            frame = pd.DataFrame({"row": range(rows), **columns})
            assert len(frame.columns) == 1 + len(restored)
            hyperplane.save(collection([frame]), tmp_path / "out", format=self.name)
            check([frame], hyperplane.load(tmp_path / "out"))

    @pytest.mark.slow
    @hypothesis_settings(QUICK, max_examples=scaled(5, 200))
    @given(case=parts(), way=st.sampled_from(["at once", "append", "shard"]))
    def test_parts_are_restored_or_refused(self, case, way):
        frames, kinds = case
        url = "memory://any/out"
        try:
            try:
                saved(frames, url, self.name, way)
                loaded = hyperplane.load(url)
                check(frames, loaded)
                event("came back")
            except HyperplaneError as error:
                if not self.may_be_refused(kinds):
                    raise AssertionError("refused") from error
                event("refused")
        finally:
            fsspec.filesystem("memory").store.clear()

    @hypothesis_settings(QUICK, max_examples=scaled(5, 50))
    @given(case=parts(most=1, drift=False))
    def test_a_file_is_restored_or_refused(self, case):
        (frame,), (kinds,) = case
        url = f"memory://any/one{self.suffix}"
        try:
            hyperplane.save(frame, url)
            loaded = hyperplane.load(url)
            for name in frame.columns if self.has_types else ():
                assert values_of([loaded], name) == values_of([frame], name), name
                assert same_kinds(raw([loaded], name), raw([frame], name)), name
        except HyperplaneError as error:
            if not self.may_be_refused([kinds]):
                raise AssertionError("refused") from error
        finally:
            fsspec.filesystem("memory").store.clear()

    def test_another_library_reads_the_files(self, tmp_path):
        hyperplane.save(dd.from_pandas(ROWS, npartitions=2), tmp_path / "out", format=self.name)
        names = parts_of(tmp_path / "out")
        assert len(names) == 2
        assert {name[-len(self.suffix) :] for name in names} == {self.suffix}
        frames = [self.read_with_another_library(tmp_path / "out" / name) for name in names]
        for column in ROWS:
            assert values_of(frames, column) == values_of([ROWS], column)
        hyperplane.save(ROWS, tmp_path / f"one{self.suffix}")
        frame = self.read_with_another_library(tmp_path / f"one{self.suffix}")
        assert frame["n"].to_list() == ROWS.n.to_list()

    def test_dataframe_read_returns_what_load_returns(self, tmp_path):
        if not isinstance(registry.load(self.name), SupportsRead) and self.suffix != ".tsv":
            pytest.skip("the format is only saved")
        hyperplane.save(dd.from_pandas(ROWS, npartitions=2), tmp_path / "out", format=self.name)
        loaded = hyperplane.load(tmp_path / "out").compute()
        read = hyperplane.dataframe.read(f"{tmp_path}/out/*{self.suffix}").compute()
        for column in ROWS:
            assert values_of([read], column) == values_of([loaded], column)

    @pytest.mark.parametrize("kind", ["pandas", "series", "polars", "arrow"])
    def test_tables_of_every_library(self, kind, tmp_path):
        frame = ROWS[["n"]]
        table = {"pandas": frame, "series": frame["n"], "polars": pl.DataFrame(dict(frame))}
        table["arrow"] = pa.table({"n": frame["n"]})
        url = tmp_path / f"a{self.suffix}"
        assert hyperplane.save(table[kind], url).rows == 4
        assert hyperplane.load(url)["n"].to_list() == [3, 1, 2, 5]

    def test_a_table_without_rows(self, tmp_path):
        empty = ROWS.iloc[:0]
        hyperplane.save(dd.from_pandas(empty, npartitions=1), tmp_path / "out", format=self.name)
        loaded = hyperplane.load(tmp_path / "out").compute()
        assert loaded.dtypes.to_dict() == empty.dtypes.to_dict()
        assert len(loaded) == 0
        hyperplane.save(empty, tmp_path / f"a{self.suffix}")
        assert len(hyperplane.load(tmp_path / f"a{self.suffix}")) == 0

    def test_a_table_without_rows_and_columns(self, tmp_path):
        hyperplane.save(pd.DataFrame(), tmp_path / f"a{self.suffix}")
        assert hyperplane.load(tmp_path / f"a{self.suffix}").shape == (0, 0)

    def test_the_index_is_restored(self, tmp_path):
        levels = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["u", "v"])
        for index in (levels, pd.Index(["x", "y"], name="key"), pd.Index([7.5, 8.5])):
            frame = pd.DataFrame({"n": [1, 2]}, index=index)
            hyperplane.save(
                collection([frame]), tmp_path / "out", format=self.name, mode="overwrite"
            )
            pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "out").compute(), frame)

    def test_the_same_rows_are_not_written_again(self, tmp_path):
        for url, obj in (
            (tmp_path / "out", dd.from_pandas(ROWS, npartitions=2)),
            (tmp_path / f"a{self.suffix}", ROWS),
        ):
            assert hyperplane.save(obj, url, format=self.name).changed
            assert not hyperplane.save(obj, url, format=self.name).changed

    def test_append_and_overwrite(self, tmp_path):
        df = dd.from_pandas(ROWS, npartitions=2)
        for mode, rows in (("error", 4), ("append", 8), ("overwrite", 4)):
            if mode == "overwrite":
                df = df.repartition(npartitions=1)
            hyperplane.save(df, tmp_path / "out", format=self.name, mode=mode)
            assert len(hyperplane.load(tmp_path / "out")) == rows
        assert [name[-len(self.suffix) :] for name in parts_of(tmp_path / "out")] == [self.suffix]

    def test_shards_are_one_output(self, tmp_path):
        url = tmp_path / "out"
        for index in (2, 0, 1):
            rows = ROWS.iloc[index : index + 1]
            hyperplane.save(rows, url, format=self.name, shard=(index, 3))
        assert hyperplane.load(url).compute()["n"].to_list() == [3, 1, 2]

    def test_some_columns(self, tmp_path):
        frame = ROWS.set_index(pd.Index(list("wxyz"), name="key"))
        hyperplane.save(dd.from_pandas(frame, npartitions=2), tmp_path / "out", format=self.name)
        result = hyperplane.load(tmp_path / "out")[["s", "n"]].compute()
        pd.testing.assert_frame_equal(result, frame[["s", "n"]])

    @pytest.mark.filterwarnings("ignore:columns of several levels:UserWarning")
    def test_names_of_columns_are_text_and_differ(self, tmp_path):
        levels = pd.MultiIndex.from_tuples([("a", "b_c"), ("a_b", "c")])
        twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
        refused = [
            (pd.DataFrame({0: [1], "a": [2]}), "column named 0"),
            (twice, "2 columns 'a'"),
            (pa.table([[1], [2]], names=["a", "a"]), "2 columns 'a'"),
            (pd.DataFrame([[1, 2]], columns=levels), "2 columns 'a_b_c'"),
            (pd.Series([1]), "rename"),
        ]
        for table, message in refused:
            is_frame = isinstance(table, pd.DataFrame)
            for obj in (table, dd.from_pandas(table, npartitions=1)) if is_frame else (table,):
                with pytest.raises(RequestError) as caught:
                    hyperplane.save(obj, tmp_path / "a", format=self.name)
                assert message in str(caught.value)
        assert not list(tmp_path.iterdir())

    def test_integers_of_128_bits_are_named(self, tmp_path):
        frame = pl.DataFrame({"y": [1], "x": [2**100]}, schema={"y": pl.Int64, "x": pl.Int128})
        with pytest.raises(DataError, match=r"column 'x': .* does not support Int128"):
            hyperplane.save(frame, tmp_path / f"wide{self.suffix}")
        assert not list(tmp_path.iterdir())


class RecordsContract:
    """Tests that each format of records, the items of bags, passes."""

    name: str
    #: Items, and one more that the format refuses.
    items: tuple = ({"n": 1, "s": "ü"}, {"n": 2, "s": None})
    refused_item: object = 7

    def test_items_are_restored(self, tmp_path):
        assert isinstance(registry.load(self.name), SupportsSaveRecords)
        bag = db.from_sequence(self.items, npartitions=2)
        assert hyperplane.save(bag, tmp_path / "bag", format=self.name).rows == len(self.items)
        assert hyperplane.load(tmp_path / "bag").compute() == list(self.items)

    def test_an_item_that_would_change_is_named(self, tmp_path):
        bag = db.from_sequence([*self.items, self.refused_item], npartitions=1)
        with pytest.raises(WrongType, match="part 0, item 2") as caught:
            hyperplane.save(bag, tmp_path / "bag", format=self.name)
        assert caught.value.where == "item 2"
        assert not (tmp_path / "bag").exists()
