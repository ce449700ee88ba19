"""Parts of different types keep their values, or an error names the value that does not fit."""

from __future__ import annotations

from itertools import product

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from saving_cases import in_this_thread
from scale import combinations

import hyperplane
from hyperplane.errors import DataError, ReadError
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_kinds import list_formats
from hyperplane.storage.part_schemas import convert_frame

_here = pytest.fixture(autouse=True)(in_this_thread)
FORMATS = list(list_formats("dataframe"))


def append(url, form, *columns):
    for values in columns:
        frame = pd.DataFrame({"n": values})
        hyperplane.save(dd.from_pandas(frame, npartitions=1), url, format=form, mode="append")


def differing(*frames):
    """Return a collection whose partitions differ from its declared columns and types."""
    return dd.from_map(frames.__getitem__, range(len(frames)), meta=frames[0][:0])


def loaded(url):
    """Load a collection, and check that each partition has its dtypes."""
    found = hyperplane.load(url)
    pieces = dask.compute(*found.to_delayed())
    assert {str(piece.n.dtype) for piece in pieces} == {str(found.n.dtype)}
    return found.compute().n


WIDENED = [
    ([1, 2], [1.5, 2.5], "float64"),
    ([True], [5], "object"),
    (np.array([1], "int32"), [2**40], "int64"),
    (["a", "007"], ["1", "2"], "str"),
    ([1], ["a"], "object"),
    (pd.array([2**53 + 1, 2], "Int64"), pd.array([1, None], "Int64"), "Int64"),
    ([1, 2], pd.array([2**53 + 1, None], "Int64"), "Int64"),
    ([1, 2], [None, None], "Int64"),
    ([None], ["a"], "str"),
    (np.array(["2024"], "M8[s]"), np.array(["2024-01-01T00:00:00.5"], "M8[ms]"), "datetime64"),
]


#: CSV has no types; at small scale the formats that have some take turns.
OTHERS = [form for form in FORMATS if form != "csv"]


@pytest.mark.parametrize(
    ("case", "form"), [*product(WIDENED, ["csv"]), *combinations(WIDENED, OTHERS)]
)
def test_later_parts_widen_the_type(tmp_path, form, case):
    first, second, dtype = case
    append(tmp_path / "out", form, first, second)
    result = loaded(tmp_path / "out")
    assert str(result.dtype).startswith(dtype)
    held = [*pd.Series(first), *pd.Series(second)]
    for one, other in zip(result, held, strict=True):
        assert (pd.isna(one) and pd.isna(other)) or one == other
        assert isinstance(one, (bool, np.bool_)) == isinstance(other, (bool, np.bool_))


@pytest.mark.parametrize("form", FORMATS)
def test_shards_widen_the_type(tmp_path, form):
    for index, values in enumerate(([1, 2], [1.5, None])):
        frame = pd.DataFrame({"n": values})
        hyperplane.save(frame, tmp_path / "out", format=form, shard=(index, 2))
    assert loaded(tmp_path / "out").fillna(-1).to_list() == [1, 2, 1.5, -1]


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_that_does_not_fit_the_common_type_is_named(tmp_path, form):
    frames = [pd.DataFrame({"n": values}) for values in ([1.5], [1, 2**53 + 1])]
    hyperplane.save(differing(*frames), tmp_path / "out", format=form)
    with pytest.raises(ReadError, match=r"part-0000.*'n' holds 9007199254740993.* float64"):
        hyperplane.load(tmp_path / "out").compute()


@pytest.mark.parametrize("form", FORMATS)
def test_parts_with_other_columns_are_an_error_of_load(tmp_path, form):
    frames = [pd.DataFrame({name: [1] for name in names}) for names in ("ab", "ba", "ac")]
    hyperplane.save(differing(*frames[:2]), tmp_path / "out", format=form)
    assert hyperplane.load(tmp_path / "out").compute().columns.to_list() == ["a", "b"]
    hyperplane.save(differing(*frames), tmp_path / "out", format=form, mode="overwrite")
    with pytest.raises(
        ReadError, match=r"lacks the columns 'b' and has the additional columns 'c'"
    ):
        hyperplane.load(tmp_path / "out")


def test_files_of_other_programs_have_types_that_fit_all_values(tmp_path):
    (tmp_path / "csv").mkdir()
    (tmp_path / "parquet").mkdir()
    for number, values in enumerate(([1, 2], [1.5, None], [2**40, 3])):
        frame = pd.DataFrame({"n": values})
        frame.to_csv(tmp_path / "csv" / f"{number}.csv", index=False)
        frame.to_parquet(tmp_path / "parquet" / f"{number}.parquet")
    held = [1, 2, 1.5, -1, 2**40, 3]
    assert hyperplane.load(tmp_path / "csv").compute().n.fillna(-1).to_list() == held
    assert loaded(tmp_path / "parquet").fillna(-1).to_list() == held


def test_parts_with_other_ordered_categories_become_text(tmp_path):
    for index, words in enumerate((["b", "a"], ["b", "a"], ["a", "c"])):
        kind = pd.CategoricalDtype(words, ordered=True)
        frame = pd.DataFrame({"n": pd.Series(["a"], dtype=kind)})
        df = dd.from_pandas(frame, npartitions=1)
        hyperplane.save(df, tmp_path / "out", mode="append")
        result = hyperplane.load(tmp_path / "out").compute().n
        assert result.to_list() == ["a"] * (index + 1)
        assert isinstance(result.dtype, pd.CategoricalDtype) == (index < 2)


def test_large_integers_and_column_names_are_loaded_unchanged(tmp_path):
    whole = pd.DataFrame({"1": pd.array([2**53 + 1, None], "Int64"), "at_time": ["1", "2024"]})
    for form in FORMATS:
        frame = whole if form != "avro" else whole.rename(columns={"1": "one"})
        hyperplane.save(frame, tmp_path / f"a.{form}")
        result = hyperplane.load(tmp_path / f"a.{form}")
        assert result.columns.to_list() == frame.columns.to_list()
        assert result.iloc[0, 0] == 2**53 + 1
    months = pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M")})
    hyperplane.save(months, tmp_path / "p.jsonl")
    assert hyperplane.load(tmp_path / "p.jsonl").p.to_list() == ["2026-01", "2026-02"]
    hyperplane.save(dd.from_pandas(months, npartitions=2), tmp_path / "p", format="jsonl")
    pd.testing.assert_frame_equal(
        hyperplane.load(tmp_path / "p").compute().reset_index(drop=True), months
    )
    objects = pd.DataFrame({"n": pd.Series([2**53 + 1, None], dtype=object)})
    hyperplane.save(objects, tmp_path / "o.parquet")
    assert hyperplane.load(tmp_path / "o.parquet").n[0] == 2**53 + 1


@pytest.mark.parametrize("kind", ["float16", pd.ArrowDtype(pa.float16())])
def test_half_floats_are_numbers_in_json_lines(tmp_path, kind):
    frame = pd.DataFrame({"v": pd.array([0.5, None, -0.0], dtype="float64")}).astype(kind)
    hyperplane.save(dd.from_pandas(frame, npartitions=1), tmp_path / "out", format="jsonl")
    (file,) = (tmp_path / "out").iterdir()
    assert file.read_text() == '{"v":0.5}\n{"v":null}\n{"v":-0.0}\n'
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "out").compute(), frame)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("values", [[2.5, True], [b"a", "b"], [[2.5], [True]]])
def test_objects_of_several_kinds_are_refused(tmp_path, form, values):
    frame = pd.DataFrame({"n": pd.Series(values, dtype=object)})
    with pytest.raises(DataError, match="requires values of one type, and it holds"):
        hyperplane.save(frame, tmp_path / f"a.{form}")


def test_infinity_is_not_written_as_a_missing_value(tmp_path):
    with pytest.raises(DataError, match="infinity"):
        hyperplane.save(pd.DataFrame({"x": [1.0, np.inf]}), tmp_path / "a.jsonl")


def test_equal_text_of_another_type_is_saved_again(tmp_path):
    for values in ([1, 2], ["1", "2"]):
        df = dd.from_pandas(pd.DataFrame({"n": values}), npartitions=1)
        hyperplane.save(df, tmp_path / "out", format="csv", mode="overwrite")
        assert loaded(tmp_path / "out").to_list() == values


def test_a_manifest_stores_each_schema_once():
    parts = tuple(ManifestEntry(f"{n}.csv", 1, "a", 1, None, f"schema {n % 2}") for n in range(9))
    result = Manifest("csv", "dataframe", parts)
    assert result.to_json().count("schema 1") == 1
    assert Manifest.from_json(result.to_json()) == result


def test_arrow_dictionary_columns_are_loaded_unchanged(tmp_path):
    words = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    frame = pd.DataFrame({"n": pd.array(["a", None, "b"], dtype=words)})
    hyperplane.save(dd.from_pandas(frame, npartitions=1), tmp_path / "out")
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "out").compute(), frame)


def test_a_missing_value_of_a_category_of_integers_is_no_integer() -> None:
    """Parts that another package has written may have other types than the first one."""
    part = pd.DataFrame({"a": pd.Series([3, None], dtype=pd.CategoricalDtype([3, 2]))})
    with pytest.raises(ReadError, match=r"column 'a'.*nan"):
        convert_frame(part, pd.DataFrame({"a": pd.Series([], dtype="int64")}), "part.x")
    for dtype in ("float64", pd.CategoricalDtype(pd.Index([], dtype="int64"))):
        like = pd.DataFrame({"a": pd.Series([], dtype=dtype)})
        assert convert_frame(part, like, "part.x")["a"].astype(object).dropna().tolist() == [3]
