"""Estimated sizes of steps."""

from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from explain_frames import expect_no_finding, find_only, log, users
from pandas_versions import TEXT

from hyperplane.collections.frames.explain import partitioning, query_plan, repeated_work
from hyperplane.collections.frames.explain.lazy_steps import make_lazy
from hyperplane.collections.frames.explain.sizes import SizeEstimator, read_footers
from hyperplane.collections.frames.read import read


def size(collection):
    return SizeEstimator().estimate(make_lazy(collection.expr))


def big(rows=400_000, users=400_000):
    """Return random users, each with a text, in pandas."""
    number = np.random.default_rng(0).permutation(rows) % users
    names = pd.Series([f"name-{n}" for n in number], dtype=TEXT)
    return pd.DataFrame({"user": number, "few": number % 7, "name": names})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A Parquet dataset of two files, and its rows."""
    folder, frame = tmp_path_factory.mktemp("big"), big()
    for part in range(2):
        frame.iloc[part::2].to_parquet(folder / f"{part}.parquet", index=False)
    return folder, frame


def test_the_size_of_a_frame_in_memory_is_measured():
    assert size(log()).total == pytest.approx(users().memory_usage(index=False, deep=True).sum())
    assert str(size(log().spent)) == "960 B"
    assert size(log()[log().spent > 3]).at_most


@pytest.mark.parametrize("options", [{}, {"filesystem": "arrow"}])
def test_the_size_of_files_is_their_size_in_memory(files, options):
    folder, frame = files
    read = dd.read_parquet(folder, **options)
    estimate = size(read)
    assert estimate.rows == len(frame)
    assert estimate.total == pytest.approx(
        frame.memory_usage(index=False, deep=True).sum(), rel=0.3
    )
    assert size(read[["user"]]).total == pytest.approx(8 * len(frame), rel=0.2)
    assert size(read.user).total == size(read[["user"]]).total


def test_later_steps_have_the_size_of_their_columns():
    spent = log().spent
    assert size(spent * 2).total == 960
    assert size(log().assign(more=spent)[["more"]]).total == 960
    assert size(log().astype({"user": "int8"})[["user"]]).total == 120
    assert size(log().repartition(npartitions=3)[["user"]]).total == 960
    assert size(log().set_index("spent", npartitions=3)[["user"]]).total == 960
    assert size(log().drop_duplicates()[["user"]]).at_most


def test_unknown_sizes_are_not_guessed():
    assert size(log().map_partitions(lambda part: part)) is None
    assert size(log().merge(log(), on="user")) is None
    assert size(log().assign(text=log().kind + "x")) is None
    assert size(log().persist()) is None
    assert size(log().spent.sum()) is None


def test_sizes_after_a_filter_are_upper_bounds(files):
    read = dd.read_parquet(files[0], filesystem="arrow")
    assert not size(read).at_most
    pushed = query_plan.build_query_plan([read[read.few > 3].expr]).simplified_steps[-1]
    assert SizeEstimator().estimate(pushed).at_most
    assert size(read.partitions[0]).at_most


def test_many_files_are_sampled(tmp_path):
    for part in range(70):
        users().to_parquet(tmp_path / f"{part}.parquet")
    footers = read_footers(make_lazy(dd.read_parquet(tmp_path).expr))
    assert footers.rows == 70 * 120
    assert footers.columns["user"] == pytest.approx(70 * 960, rel=0.2)


def test_a_reader_without_footers_has_no_known_size():
    assert read_footers(SimpleNamespace(_dataset_info={})) is None


def test_footers_show_that_there_are_many_groups(files):
    read = dd.read_parquet(files[0]).repartition(npartitions=4)
    for column in ("user", "name"):
        finding = find_only("split_out", read.groupby(column).few.sum())
        assert f"{column!r} likely has very many distinct values" in finding.why
    expect_no_finding(read.groupby("few").user.sum())
    expect_no_finding(read[read.few > 3].groupby("user").few.sum())


@pytest.mark.parametrize("rows", [100, 400_000])
def test_files_of_few_values_or_rows_are_not_reported(tmp_path, rows):
    big(rows, users=1_000).to_parquet(tmp_path / "0.parquet", index=False)
    read = dd.read_parquet(tmp_path).repartition(npartitions=4)
    expect_no_finding(read.groupby("user").few.sum())
    expect_no_finding(read.groupby("name").few.sum())


def test_large_files_that_are_read_again_are_reported(files, monkeypatch):
    read = dd.read_parquet(files[0])
    pair = read.user.sum(), read.few.max()
    expect_no_finding(*pair)
    monkeypatch.setattr(repeated_work, "LARGE_SOURCE", 1_000_000)
    finding = find_only("read_again", *pair)
    assert finding.instead.startswith("df = dd.read_parquet(path, columns=['few', 'user'])")
    expect_no_finding(read.user.sum() + read.few.max())


def test_small_files_are_detected_by_all_their_columns(files, monkeypatch):
    monkeypatch.setattr(partitioning, "MANY_PARTITIONS", 1)
    finding = find_only("many_small_partitions", dd.read_parquet(files[0]))
    assert finding.step == f"read_parquet({files[0].name!r})"
    assert finding.instead == "df = df.repartition(npartitions=1)"
    # For few columns of large partitions Dask reads several partitions in one task.
    monkeypatch.setattr(partitioning, "SMALL_PARTITION", 2_000_000)
    expect_no_finding(dd.read_parquet(files[0])[["few"]])


def test_the_memory_of_python_objects_is_sampled():
    with dask.config.set({"dataframe.convert-string": False}):
        values = pd.Series([f"text {n}" for n in range(50_000)], dtype=object, name="text")
        frame = dd.from_pandas(values, npartitions=3)
    assert size(frame).total == pytest.approx(values.memory_usage(index=False, deep=True), rel=0.02)


def test_the_size_of_hyperplane_read_is_the_planned_one(files, tmp_path):
    folder, frame = files
    read_all = read(str(folder))
    held = frame.memory_usage(index=False, deep=True)
    assert size(read_all).total == pytest.approx(held.sum(), rel=0.3)
    assert size(read_all[["few"]]).total == held["few"]
    assert size(read_all[["name"]]).total == pytest.approx(held["name"], rel=0.5)
    assert size(read(str(folder), filters=[("few", ">", 3)])).at_most
    users().to_csv(tmp_path / "log.csv", index=False)
    text = read(str(tmp_path / "log.csv"))
    assert size(text) is None
    assert find_only("text_read_again", text.spent.sum(), text.user.max()).step == "read('log.csv')"
