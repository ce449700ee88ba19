"""Each kind of finding, and similar steps that are not reported."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from explain_frames import (
    expect_no_finding,
    explain_lazily,
    find_only,
    first_row,
    indexed,
    log,
    named,
    users,
)

from hyperplane.collections.frames.explain import partitioning


def row_sum(row):
    return row.user + row.spent


def test_set_index_is_reported():
    finding = find_only("set_index", log().set_index("user"))
    assert finding.step == "set_index('user')"
    assert finding.size.startswith("6 partitions, ")
    assert "first pass" in finding.why
    assert "sorted=True" in finding.instead
    assert ".persist()" in finding.persist


def test_set_index_with_given_divisions_has_no_first_pass():
    finding = find_only("set_index", log().set_index("user", divisions=[0, 5, 12]))
    assert "first pass" not in finding.why


def test_set_index_without_moving_rows_is_not_reported():
    expect_no_finding(log(1).set_index("user"))
    expect_no_finding(
        log().set_index("spent", sorted=True, divisions=(0, 30, 60, 90, 120, 150, 179))
    )
    expect_no_finding(log().set_index("user", sort=False))
    expect_no_finding(log().set_index("spent").head(3, compute=False))


def test_sort_values_is_reported():
    finding = find_only("sort_values", log().sort_values(["user", "spent"], ascending=False))
    assert finding.step == "sort_values(['user', 'spent'])"
    assert "ascending=False" in finding.instead


def test_sort_values_of_one_partition_or_for_the_first_rows_is_not_reported():
    expect_no_finding(log(1).sort_values("user"))
    expect_no_finding(log().sort_values("user").head(3, compute=False))
    expect_no_finding(log().nlargest(3, "user"))


def test_a_shuffle_is_reported():
    assert find_only("shuffle", log().shuffle("user")).step == "shuffle on 'user'"
    expect_no_finding(log().repartition(npartitions=3))
    expect_no_finding(log().repartition(npartitions=12))
    expect_no_finding(log().shuffle("user").count())  # Dask removes the shuffle


def test_a_join_on_columns_is_reported():
    finding = find_only("join", log().merge(named(), on="user"))
    assert finding.step == "inner join on 'user'"
    assert "6 partitions" in finding.size
    assert "3 partitions" in finding.size
    assert "both sides" in finding.why
    assert finding.instead.startswith("left.merge(right.repartition(npartitions=1), on='user')")


def test_joins_that_move_no_rows_or_a_small_side_are_not_reported():
    expect_no_finding(log().merge(named(1), on="user"))
    expect_no_finding(log().merge(named().compute(scheduler="sync"), on="user", how="left"))
    expect_no_finding(
        indexed().join(named().set_index("user", sorted=True, divisions=(0, 5, 10, 12)))
    )
    expect_no_finding(
        log(40).merge(named(2), on="user")
    )  # Dask broadcasts the two partitions to the forty


def test_a_join_that_cannot_broadcast_moves_rows():
    assert "both sides" in find_only("join", log().merge(named(1), on="user", how="outer")).why


def test_a_join_moves_only_the_side_that_is_not_partitioned():
    moved = log().shuffle("user", npartitions=6)
    explanation = explain_lazily(moved.merge(named(), on="user", shuffle_method="tasks"))
    assert explanation.kinds == ("shuffle", "join")
    assert "the right side" in explanation.findings[1].why


def test_a_join_on_an_index_of_unknown_divisions_is_reported():
    left = indexed().clear_divisions()
    finding = find_only("join", left.join(indexed(3).rename(columns=str.upper)))
    assert "the divisions of left are not known" in finding.why
    assert finding.step == "left join on the index"


def test_arithmetic_of_frames_of_unknown_divisions_is_reported():
    one, other = indexed().clear_divisions(), indexed(3).clear_divisions()
    finding = find_only("align", one.mask(other.spent > 1))
    assert "divisions of 2 are not known" in finding.why
    expect_no_finding(indexed().mask(indexed(3).spent > 1))


@pytest.mark.parametrize("method", ["apply", "transform"])
def test_a_function_of_whole_groups_is_reported(method):
    grouped = log().groupby("user")
    call = {"apply": grouped.apply, "transform": grouped.spent.transform}[method]
    finding = find_only(f"groupby_{method}", call(first_row, meta=users().head(0)))
    assert "every row moves" in finding.why
    assert f".{method}(first_row), meta=meta)" in finding.instead
    expect_no_finding(indexed().groupby("user").spent.apply(first_row, meta=("spent", float)))
    expect_no_finding(log(1).groupby("user").spent.apply(first_row, meta=("spent", float)))


@pytest.mark.parametrize("method", ["ffill", "bfill", "median"])
def test_methods_of_whole_groups_are_reported(method):
    find_only(f"groupby_{method}", getattr(log().groupby("user").spent, method)())
    expect_no_finding(getattr(indexed().groupby("user").spent, method)())


def test_a_shift_in_groups_is_reported():
    finding = find_only(
        "groupby_shift", log().groupby("user").spent.shift(2, meta=("spent", float))
    )
    assert "shift(periods=2), meta=meta)" in finding.instead


def test_a_median_among_aggregations_is_reported():
    finding = find_only("groupby_median", log().groupby("user").agg({"spent": ["median", "sum"]}))
    assert ".agg({'spent': ['median', 'sum']})" in finding.instead
    expect_no_finding(log().groupby("user").agg({"spent": ["mean", "sum"]}))
    expect_no_finding(log().spent.quantile(0.5))


def test_nunique_of_groups_is_reported():
    finding = find_only("groupby_nunique", log().groupby("user").kind.nunique())
    assert "['user', 'kind']" in finding.why
    expect_no_finding(log().kind.nunique())


@pytest.fixture
def many_users():
    """A frame with too many users for a result of one partition."""
    rows = np.arange(300_000)
    frame = pd.DataFrame({"user": rows % 150_000, "few": rows % 100, "spent": 1.0})
    return dd.from_pandas(frame, npartitions=4)


def test_many_groups_in_one_partition_are_reported(many_users):
    finding = find_only("split_out", many_users.groupby("user").spent.sum())
    assert "'user' has at least" in finding.why
    assert finding.instead == "df.groupby('user', sort=False)['spent'].sum(split_out=True)"
    find_only("split_out", many_users.groupby(["few", "user"]).agg({"spent": "max"}))
    find_only("split_out", many_users.drop_duplicates(subset=["user"], split_out=1))
    find_only("split_out", many_users.user.unique(split_out=1))
    find_only("split_out", many_users.user.value_counts(sort=True))


def test_results_of_few_unknown_or_distributed_groups_are_not_reported(many_users):
    expect_no_finding(many_users.groupby("few").spent.sum())
    expect_no_finding(many_users.groupby("user").spent.sum(split_out=2))
    expect_no_finding(
        many_users[many_users.spent > 2].groupby("user").spent.sum()
    )  # few users may be left
    expect_no_finding(many_users.assign(user=many_users.user // 10_000).groupby("user").spent.sum())
    expect_no_finding(many_users.drop_duplicates())
    expect_no_finding(many_users.user.value_counts())
    expect_no_finding(many_users.repartition(npartitions=1).groupby("user").spent.sum())


def test_many_categories_in_one_partition_are_reported():
    values = pd.Categorical(["c1"] * 8, categories=[f"c{i}" for i in range(100_000)])
    frame = dd.from_pandas(pd.DataFrame({"key": values, "x": range(8)}), npartitions=2)
    finding = find_only("split_out", frame.groupby("key", observed=True).x.sum())
    assert "100000 categories" in finding.why
    expect_no_finding(
        frame.assign(key=frame.key.cat.as_unknown()).groupby("key", observed=True).x.sum()
    )


def test_many_small_partitions_are_reported():
    finding = find_only("many_small_partitions", log(1).repartition(npartitions=501).spent + 1)
    assert finding.instead == "df = df.repartition(npartitions=1)"
    expect_no_finding(log(1).repartition(npartitions=500).spent + 1)


def test_many_partitions_of_unknown_size_are_not_called_small():
    expect_no_finding(dd.from_map(pd.DataFrame, [{"x": [1]}] * 600, meta=pd.DataFrame({"x": [1]})))


def test_large_partitions_are_reported(monkeypatch):
    expect_no_finding(log())
    monkeypatch.setattr(partitioning, "LARGE_PARTITION", 500)
    finding = find_only("large_partitions", log(2))
    assert "8 times" in finding.why
    expect_no_finding(log(40))


def test_repartition_by_size_computes_first():
    finding = find_only("repartition_size", log().repartition(partition_size="10kB"))
    assert "computed twice: to measure it" in finding.why
    assert finding.instead == "df = df.repartition(npartitions=1)"


def test_interleaving_into_many_pieces_is_reported():
    def shifted(start):
        frame = pd.DataFrame({"x": range(20)}, index=np.arange(20) * 10 + start)
        return dd.from_pandas(frame, npartitions=5)

    frames = [shifted(start) for start in range(15)]
    finding = find_only("interleave", dd.concat(frames, interleave_partitions=True))
    assert "75 partitions become " in finding.size
    expect_no_finding(dd.concat(frames))
    expect_no_finding(dd.concat(frames[:3], interleave_partitions=True))


def test_loc_on_unknown_divisions_is_reported():
    finding = find_only("loc_unknown", indexed().clear_divisions().loc[3:5])
    assert finding.step == "loc[3:5]"
    expect_no_finding(indexed().loc[3:5])
    expect_no_finding(indexed().loc[indexed().spent > 3])


def test_functions_applied_to_rows_are_reported():
    finding = find_only("row_function", log().apply(row_sum, axis=1, meta=("x", float)))
    assert finding.step == "apply(row_sum, axis=1)"
    expect_no_finding(log().map_partitions(row_sum, meta=("x", float)))
    expect_no_finding(log().spent.map(abs, meta=("x", float)))


def test_string_methods_on_python_objects_are_reported():
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(users().astype({"kind": object}), npartitions=2)
        finding = find_only("python_strings", frame.kind.str.upper())
    assert "astype('string[pyarrow]').str.upper" in finding.instead
    expect_no_finding(log().kind.str.upper())


def test_steps_that_collections_share_are_reported():
    by_user = log().set_index("user", npartitions=6)
    explanation = explain_lazily(by_user.spent.sum(), by_user.kind.max())
    assert explanation.kinds == ("shared_step", "set_index")
    assert "2 of the collections" in explanation.findings[0].why
    assert explain_lazily(by_user.spent.sum(), log().kind.max()).kinds == ("set_index",)
    expect_no_finding(log().spent.sum(), log().kind.max())


def test_a_step_used_twice_by_one_collection_is_not_reported():
    by_user = log().set_index("user", npartitions=6)
    find_only("set_index", by_user.spent.sum() + by_user.spent.max())
    find_only("set_index", dd.concat([by_user[by_user.spent > 3], by_user[by_user.spent < 3]]))


def test_a_frame_shuffled_by_two_joins_is_reported():
    left, right, third = log(), named(), named(4).rename(columns={"name": "title"})
    both = dd.concat([left.merge(right, on="user"), left.merge(third, on="user")])
    explanation = explain_lazily(both)
    assert sorted(explanation.kinds) == ["join", "join", "moved_again"]
    chain = left.merge(right, on="user").merge(third, on="user", shuffle_method="tasks")
    assert "moved_again" not in explain_lazily(chain).kinds


def test_text_files_that_are_read_again_are_reported(tmp_path):
    users().to_csv(tmp_path / "a.csv", index=False)
    users().to_json(tmp_path / "a.json", orient="records", lines=True)
    frame = dd.read_csv(tmp_path / "*.csv")
    finding = find_only("text_read_again", frame.spent.sum(), frame.user.max())
    assert finding.step == "read_csv"
    assert "to_parquet" in finding.instead
    expect_no_finding(frame.spent.sum() / frame.user.max())  # Dask reads both columns at once
    lines = dd.read_json(str(tmp_path / "a.json"), lines=True)
    assert find_only("text_read_again", lines.spent.sum(), lines.user.max()).step.startswith(
        "read_json"
    )


@pytest.mark.slow
@pytest.mark.cluster
def test_the_memory_of_a_thread_of_the_cluster_decides():
    rows = dd.from_pandas(pd.DataFrame({"x": np.zeros(4_000_000)}), npartitions=2)
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            memory_limit="200MB",
            dashboard_address="127.0.0.1:0",
            processes=False,
        ) as cluster,
        cluster.get_client(),
    ):
        finding = find_only("large_partitions", rows)
    assert "a thread has 100 MB" in finding.why
    expect_no_finding(rows)
