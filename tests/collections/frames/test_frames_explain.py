"""Each kind of finding, and similar steps that are not reported."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from explain_frames import asked, indexed, log, named, nothing, only, users, whole

from hyperplane.collections.frames.explain import partitioning


def row_sum(row):
    return row.user + row.spent


def test_set_index():
    found = only("set_index", log().set_index("user"))
    assert found.step == "set_index('user')"
    assert found.size.startswith("6 partitions, ")
    assert "first pass" in found.why
    assert "sorted=True" in found.instead
    assert ".persist()" in found.persist


def test_set_index_with_divisions_moves_without_a_first_pass():
    found = only("set_index", log().set_index("user", divisions=[0, 5, 12]))
    assert "first pass" not in found.why


def test_set_index_that_moves_nothing():
    nothing(log(1).set_index("user"))
    nothing(log().set_index("spent", sorted=True, divisions=(0, 30, 60, 90, 120, 150, 179)))
    nothing(log().set_index("user", sort=False))
    nothing(log().set_index("spent").head(3, compute=False))


def test_sort_values():
    found = only("sort_values", log().sort_values(["user", "spent"], ascending=False))
    assert found.step == "sort_values(['user', 'spent'])"
    assert "ascending=False" in found.instead


def test_sort_values_of_one_partition_or_for_the_first_rows():
    nothing(log(1).sort_values("user"))
    nothing(log().sort_values("user").head(3, compute=False))
    nothing(log().nlargest(3, "user"))


def test_shuffle():
    assert only("shuffle", log().shuffle("user")).step == "shuffle on 'user'"
    nothing(log().repartition(npartitions=3))
    nothing(log().repartition(npartitions=12))
    nothing(log().shuffle("user").count())  # Dask removes the shuffle


def test_join_on_columns():
    found = only("join", log().merge(named(), on="user"))
    assert found.step == "inner join on 'user'"
    assert "6 partitions" in found.size
    assert "3 partitions" in found.size
    assert "both sides" in found.why
    assert found.instead.startswith("left.merge(right.repartition(npartitions=1), on='user')")


def test_joins_that_move_nothing_or_a_small_side_only():
    nothing(log().merge(named(1), on="user"))
    nothing(log().merge(named().compute(scheduler="sync"), on="user", how="left"))
    nothing(indexed().join(named().set_index("user", sorted=True, divisions=(0, 5, 10, 12))))
    nothing(log(40).merge(named(2), on="user"))  # Dask broadcasts the two partitions to the forty


def test_a_join_that_cannot_broadcast_moves_rows():
    assert "both sides" in only("join", log().merge(named(1), on="user", how="outer")).why


def test_join_of_one_side_that_is_in_place():
    moved = log().shuffle("user", npartitions=6)
    found = asked(moved.merge(named(), on="user", shuffle_method="tasks"))
    assert found.kinds == ("shuffle", "join")
    assert "the right side" in found.findings[1].why


def test_join_on_an_index_of_unknown_divisions():
    left = indexed().clear_divisions()
    found = only("join", left.join(indexed(3).rename(columns=str.upper)))
    assert "the divisions of left are not known" in found.why
    assert found.step == "left join on the index"


def test_arithmetic_of_frames_whose_divisions_are_unknown():
    one, other = indexed().clear_divisions(), indexed(3).clear_divisions()
    found = only("align", one.mask(other.spent > 1))
    assert "divisions of 2 are not known" in found.why
    nothing(indexed().mask(indexed(3).spent > 1))


@pytest.mark.parametrize("method", ["apply", "transform"])
def test_group_by_of_a_function(method):
    grouped = log().groupby("user")
    call = {"apply": grouped.apply, "transform": grouped.spent.transform}[method]
    found = only(f"groupby_{method}", call(whole, meta=users().head(0)))
    assert "every row moves" in found.why
    assert f".{method}(whole), meta=meta)" in found.instead
    nothing(indexed().groupby("user").spent.apply(whole, meta=("spent", float)))
    nothing(log(1).groupby("user").spent.apply(whole, meta=("spent", float)))


@pytest.mark.parametrize("method", ["ffill", "bfill", "median"])
def test_group_bys_that_need_whole_groups(method):
    only(f"groupby_{method}", getattr(log().groupby("user").spent, method)())
    nothing(getattr(indexed().groupby("user").spent, method)())


def test_group_by_shift():
    found = only("groupby_shift", log().groupby("user").spent.shift(2, meta=("spent", float)))
    assert "shift(periods=2), meta=meta)" in found.instead


def test_a_median_among_aggregations():
    found = only("groupby_median", log().groupby("user").agg({"spent": ["median", "sum"]}))
    assert ".agg({'spent': ['median', 'sum']})" in found.instead
    nothing(log().groupby("user").agg({"spent": ["mean", "sum"]}))
    nothing(log().spent.quantile(0.5))


def test_group_by_nunique():
    found = only("groupby_nunique", log().groupby("user").kind.nunique())
    assert "['user', 'kind']" in found.why
    nothing(log().kind.nunique())


@pytest.fixture
def many_users():
    """A frame with too many users for a result of one partition."""
    rows = np.arange(300_000)
    frame = pd.DataFrame({"user": rows % 150_000, "few": rows % 100, "spent": 1.0})
    return dd.from_pandas(frame, npartitions=4)


def test_many_groups_in_one_partition(many_users):
    found = only("split_out", many_users.groupby("user").spent.sum())
    assert "'user' has at least" in found.why
    assert found.instead == "df.groupby('user', sort=False)['spent'].sum(split_out=True)"
    only("split_out", many_users.groupby(["few", "user"]).agg({"spent": "max"}))
    only("split_out", many_users.drop_duplicates(subset=["user"], split_out=1))
    only("split_out", many_users.user.unique(split_out=1))
    only("split_out", many_users.user.value_counts(sort=True))


def test_groups_that_are_few_unknown_or_spread(many_users):
    nothing(many_users.groupby("few").spent.sum())
    nothing(many_users.groupby("user").spent.sum(split_out=2))
    nothing(many_users[many_users.spent > 2].groupby("user").spent.sum())  # few users may be left
    nothing(many_users.assign(user=many_users.user // 10_000).groupby("user").spent.sum())
    nothing(many_users.drop_duplicates())
    nothing(many_users.user.value_counts())
    nothing(many_users.repartition(npartitions=1).groupby("user").spent.sum())


def test_many_categories():
    values = pd.Categorical(["c1"] * 8, categories=[f"c{i}" for i in range(100_000)])
    frame = dd.from_pandas(pd.DataFrame({"key": values, "x": range(8)}), npartitions=2)
    found = only("split_out", frame.groupby("key", observed=True).x.sum())
    assert "100000 categories" in found.why
    nothing(frame.assign(key=frame.key.cat.as_unknown()).groupby("key", observed=True).x.sum())


def test_many_small_partitions():
    found = only("many_small_partitions", log(1).repartition(npartitions=501).spent + 1)
    assert found.instead == "df = df.repartition(npartitions=1)"
    nothing(log(1).repartition(npartitions=500).spent + 1)


def test_many_partitions_of_unknown_size_are_not_called_small():
    nothing(dd.from_map(pd.DataFrame, [{"x": [1]}] * 600, meta=pd.DataFrame({"x": [1]})))


def test_large_partitions(monkeypatch):
    nothing(log())
    monkeypatch.setattr(partitioning, "LARGE_PARTITION", 500)
    found = only("large_partitions", log(2))
    assert "8 times" in found.why
    nothing(log(40))


def test_repartition_by_size_computes_first():
    found = only("repartition_size", log().repartition(partition_size="10kB"))
    assert "computed twice: to measure it" in found.why
    assert found.instead == "df = df.repartition(npartitions=1)"


def test_interleaving():
    def shifted(start):
        frame = pd.DataFrame({"x": range(20)}, index=np.arange(20) * 10 + start)
        return dd.from_pandas(frame, npartitions=5)

    frames = [shifted(start) for start in range(15)]
    found = only("interleave", dd.concat(frames, interleave_partitions=True))
    assert "75 partitions become " in found.size
    nothing(dd.concat(frames))
    nothing(dd.concat(frames[:3], interleave_partitions=True))


def test_loc_on_unknown_divisions():
    found = only("loc_unknown", indexed().clear_divisions().loc[3:5])
    assert found.step == "loc[3:5]"
    nothing(indexed().loc[3:5])
    nothing(indexed().loc[indexed().spent > 3])


def test_functions_of_rows():
    found = only("row_function", log().apply(row_sum, axis=1, meta=("x", float)))
    assert found.step == "apply(row_sum, axis=1)"
    nothing(log().map_partitions(row_sum, meta=("x", float)))
    nothing(log().spent.map(abs, meta=("x", float)))


def test_texts_as_python_objects():
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(users().astype({"kind": object}), npartitions=2)
        found = only("python_strings", frame.kind.str.upper())
    assert "astype('string[pyarrow]').str.upper" in found.instead
    nothing(log().kind.str.upper())


def test_steps_that_collections_share():
    by_user = log().set_index("user", npartitions=6)
    found = asked(by_user.spent.sum(), by_user.kind.max())
    assert found.kinds == ("shared_step", "set_index")
    assert "2 of the collections" in found.findings[0].why
    assert asked(by_user.spent.sum(), log().kind.max()).kinds == ("set_index",)
    nothing(log().spent.sum(), log().kind.max())


def test_one_collection_uses_a_step_twice_and_dask_does_it_once():
    by_user = log().set_index("user", npartitions=6)
    only("set_index", by_user.spent.sum() + by_user.spent.max())
    only("set_index", dd.concat([by_user[by_user.spent > 3], by_user[by_user.spent < 3]]))


def test_a_frame_that_two_joins_move():
    left, right, third = log(), named(), named(4).rename(columns={"name": "title"})
    both = dd.concat([left.merge(right, on="user"), left.merge(third, on="user")])
    found = asked(both)
    assert sorted(found.kinds) == ["join", "join", "moved_again"]
    chain = left.merge(right, on="user").merge(third, on="user", shuffle_method="tasks")
    assert "moved_again" not in asked(chain).kinds


def test_text_files_that_are_read_again(tmp_path):
    users().to_csv(tmp_path / "a.csv", index=False)
    users().to_json(tmp_path / "a.json", orient="records", lines=True)
    frame = dd.read_csv(tmp_path / "*.csv")
    found = only("text_read_again", frame.spent.sum(), frame.user.max())
    assert found.step == "read_csv"
    assert "to_parquet" in found.instead
    nothing(frame.spent.sum() / frame.user.max())  # Dask reads both columns at once
    lines = dd.read_json(str(tmp_path / "a.json"), lines=True)
    assert only("text_read_again", lines.spent.sum(), lines.user.max()).step.startswith("read_json")


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
        found = only("large_partitions", rows)
    assert "of the 100 MB that a thread has" in found.why
    nothing(rows)
