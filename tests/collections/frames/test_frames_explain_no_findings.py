"""Steps that Dask does without moving data are never reported."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from explain_frames import expect_no_finding, explain_lazily, first_row, indexed, log, named, users
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled


def timed(parts=5):
    """Return a frame with a time index and known divisions."""
    frame = users().set_index(pd.date_range("2024-01-01", periods=120, freq="h", name="time"))
    return dd.from_pandas(frame, npartitions=parts)


CHEAP = {
    "arithmetic of columns": lambda: log().user + log().spent,
    "new columns": lambda: log().assign(double=lambda df: df.spent * 2).rename(columns=str.upper),
    "types": lambda: log().astype({"user": "float64"}).fillna({"kind": "none"}),
    "rows by a condition": lambda: log()[log().spent > 20],
    "rows by two conditions": lambda: log().query("spent > 20 and user == 3"),
    "isin": lambda: log()[log().kind.isin(["buy"])],
    "loc by label": lambda: indexed().loc[3:5, ["spent"]],
    "loc by one label": lambda: indexed().loc[3],
    "loc by condition": lambda: indexed().loc[indexed().spent > 3],
    "a column": lambda: log().spent,
    "head": lambda: log().head(3, compute=False),
    "tail": lambda: log().tail(3, compute=False),
    "sum": lambda: log().spent.sum(),
    "mean of all": lambda: log()[["user", "spent"]].mean(),
    "std": lambda: log().spent.std(),
    "count": lambda: log().count(),
    "size": lambda: log().size,
    "min and max": lambda: log().spent.max() - log().spent.min(),
    "idxmax": lambda: indexed().spent.idxmax(),
    "describe": lambda: log().describe(),
    "correlation": lambda: log()[["user", "spent"]].corr(),
    "quantile": lambda: log().spent.quantile([0.1, 0.5]),
    "nlargest": lambda: log().nlargest(3, "spent"),
    "nunique": lambda: log().user.nunique(),
    "value_counts": lambda: log().kind.value_counts(),
    "unique": lambda: log().kind.unique(),
    "drop_duplicates": lambda: log().drop_duplicates(),
    "drop_duplicates of columns": lambda: log().drop_duplicates(subset=["user", "kind"]),
    "group-by sum": lambda: log().groupby("user").spent.sum(),
    "group-by mean sorted": lambda: log().groupby("user", sort=True).mean(numeric_only=True),
    "group-by several": lambda: log().groupby(["user", "kind"]).agg({"spent": ["sum", "max"]}),
    "group-by many partitions": lambda: log(40).groupby("user").spent.var(),
    "group-by a series": lambda: log().groupby(log().user % 3).spent.count(),
    "group-by split": lambda: log().groupby("user").spent.sum(split_out=3),
    "group-by head": lambda: log().groupby("user").head(2),
    "group-by cumsum": lambda: log().groupby("user").spent.cumsum(),
    "group-by apply on the index": lambda: (
        indexed().groupby("user").apply(first_row, meta=users().set_index("user").head(0))
    ),
    "group-by transform on the index and a column": lambda: (
        indexed().groupby(["user", "kind"]).spent.transform("sum", meta=("spent", float))
    ),
    "join on the index": lambda: indexed().join(indexed(3)[["kind"]], rsuffix="_right"),
    "join on the index, outer": lambda: indexed().join(indexed(3).kind, how="outer", rsuffix="_r"),
    "join of three on the index": lambda: indexed().join(
        [indexed(2)[["kind"]].add_suffix("_2"), indexed(3)[["kind"]].add_suffix("_3")]
    ),
    "join on the name of the index": lambda: indexed().merge(
        named().set_index("user", sorted=True, divisions=(0, 5, 10, 12)), on="user"
    ),
    "join to one partition": lambda: log().merge(named(1), on="user", how="left"),
    "join of one partition": lambda: named(1).merge(log(), on="user", how="right"),
    "join to pandas": lambda: log().merge(pd.DataFrame({"user": [1], "x": [2]}), on="user"),
    "join to an aggregate": lambda: log().merge(
        log().groupby("user").spent.sum().rename("total").reset_index(), on="user"
    ),
    "join to few partitions": lambda: log(64).merge(named(2), on="user"),
    "semi-join": lambda: log().merge(named(1), on="user", how="leftsemi"),
    "merge_asof on the index": lambda: dd.merge_asof(
        timed(), timed(3)[["spent"]], left_index=True, right_index=True
    ),
    "aligned on the index": lambda: indexed().spent.where(indexed(3).spent > 1),
    "different divisions": lambda: timed().spent + timed(3).spent,
    "concat": lambda: dd.concat([log(), log(3)]),
    "concat of columns": lambda: dd.concat([log()[["user"]], log()[["spent"]]], axis=1),
    "concat interleaved": lambda: dd.concat([timed(), timed(3)], interleave_partitions=True),
    "repartition to fewer": lambda: log()[log().spent > 3].repartition(npartitions=2),
    "repartition to more": lambda: log().repartition(npartitions=20),
    "repartition by time": lambda: timed().repartition(freq="D"),
    "resample": lambda: timed().spent.resample("D").sum(),
    "rolling": lambda: timed().spent.rolling("3h").mean(),
    "rolling rows": lambda: log().spent.rolling(3).sum(),
    "cumsum": lambda: log().spent.cumsum(),
    "shift and diff": lambda: log().spent.diff(),
    "texts": lambda: log().kind.str.upper().str.len(),
    "times": lambda: timed().index.to_series().dt.month,
    "map of a dict": lambda: log().user.map({1: 2}, meta=("user", float)),
    "map_partitions": lambda: log().map_partitions(lambda part: part.head(1)),
    "map_overlap": lambda: log().spent.map_overlap(lambda part: part, 1, 1),
    "categories": lambda: log().kind.astype("category").cat.as_unknown(),
    "get_dummies": lambda: dd.get_dummies(
        log().assign(kind=log().kind.astype(pd.CategoricalDtype(["buy", "look"])))
    ),
    "pivot_table": lambda: (
        log()
        .assign(kind=log().kind.astype(pd.CategoricalDtype(["buy", "look"])))
        .pivot_table(index="user", columns="kind", values="spent")
    ),
    "melt": lambda: log().melt(id_vars=["user"], value_vars=["spent"]),
    "explode": lambda: log().explode("kind"),
    "sample": lambda: log().sample(frac=0.1),
    "partitions": lambda: log().partitions[1:3],
    "random split": lambda: log().random_split([0.5, 0.5])[0],
    "to arrays": lambda: log()[["user", "spent"]].map_partitions(np.sqrt),
}


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_step_is_not_reported(name):
    expect_no_finding(CHEAP[name]())


def test_cheap_steps_of_files_are_not_reported(tmp_path):
    for part in range(4):
        users().to_parquet(tmp_path / f"{part}.parquet")
    frame = dd.read_parquet(tmp_path)
    expect_no_finding(frame[frame.spent > 3].groupby("user").spent.sum())
    expect_no_finding(frame.spent.sum() / frame[frame.user == 3].spent.sum())
    expect_no_finding(frame.spent.sum(), frame.user.max())
    expect_no_finding(frame.shape[0])


def test_a_persisted_index_is_cheap_to_join_and_to_group():
    by_user = log().set_index("user").persist()
    expect_no_finding(by_user.join(by_user[["kind"]], rsuffix="_r"))
    expect_no_finding(by_user.groupby("user").apply(first_row, meta=by_user._meta))


LINKS = {
    "filter": lambda df: df[df.spent > 3],
    "isin": lambda df: df[df.user.isin([1, 2, 3])],
    "assign": lambda df: df.assign(spent=df.spent * 2 + df.user),
    "more": lambda df: df.assign(**{f"more{len(df.columns)}": df.spent - df.user}),
    "fillna": lambda df: df.fillna({"kind": "none"}),
    "select": lambda df: df[["user", "spent", "kind"]],
    "duplicates": lambda df: df.drop_duplicates(),
    "dropna": lambda df: df.dropna(),
    "fewer": lambda df: df.repartition(npartitions=max(1, df.npartitions // 2)),
    "partition": lambda df: df.map_partitions(lambda part: part),
    "join": lambda df: df.merge(named(1)[["user"]], on="user"),
    "concat": lambda df: dd.concat([df, df]),
    "clip": lambda df: df.assign(spent=df.spent.clip(0, 10)),
    "texts": lambda df: df.assign(kind=df.kind.str.upper()),
}
ENDS = {
    "frame": lambda df: df,
    "sum": lambda df: df.spent.sum(),
    "groups": lambda df: df.groupby("user").spent.mean(),
    "several": lambda df: df.groupby(["user", "kind"]).agg({"spent": "max"}),
    "counts": lambda df: df.kind.value_counts(),
    "head": lambda df: df.head(2, compute=False),
}


@settings(max_examples=scaled(10, 40))
@given(
    parts=st.integers(1, 9),
    links=st.lists(st.sampled_from(sorted(LINKS)), max_size=6),
    end=st.sampled_from(sorted(ENDS)),
)
def test_chains_of_cheap_steps_are_not_reported(parts, links, end):
    frame = log(parts)
    for link in links:
        frame = LINKS[link](frame)
    expect_no_finding(ENDS[end](frame))


@settings(max_examples=15, deadline=None)
@given(
    links=st.lists(st.sampled_from(sorted(LINKS)), max_size=4),
    after=st.lists(st.sampled_from(sorted(set(LINKS) - {"fewer"})), max_size=3),
)
def test_a_sort_in_a_chain_of_cheap_steps_is_reported(links, after):
    frame = log(8)
    for link in links:
        frame = LINKS[link](frame)
    kinds = () if frame.npartitions == 1 else ("sort_values",)
    frame = frame.sort_values("spent", npartitions=frame.npartitions)
    for link in after:
        frame = LINKS[link](frame)
    assert explain_lazily(frame).kinds == kinds
