"""The suggested code runs and returns the result of the step."""

import ast
from functools import cache

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from explain_frames import explain_lazily, first_row, indexed, log, named, users
from pandas_versions import IS_PANDAS_2
from scale import combinations

from hyperplane.collections.frames.explain import explain, joins


def run(code, **names):
    """Run code and return the value of its last statement, an expression or an assignment."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "lines", "exec"), names)
    if isinstance(last, ast.Assign):
        exec(compile(ast.Module([last], []), "lines", "exec"), names)
        return names[last.targets[0].id]
    return eval(compile(ast.Expression(last.value), "lines", "eval"), names)


def rows(frame):
    """Return all rows, sorted, without an unnamed index."""
    done = frame.compute() if hasattr(frame, "compute") else frame
    done = done.to_frame(name=done.name or "value") if isinstance(done, pd.Series) else done
    done = done.reset_index() if done.index.names != [None] else done
    done.columns = [str(column) for column in done.columns]
    done = done[sorted(done.columns, key=str)]
    return done.sort_values(list(done.columns)).reset_index(drop=True)


def same(*frames):
    """Check that frames have equal rows; each is computed once."""
    first, *others = map(rows, frames)
    for other in others:
        pd.testing.assert_frame_equal(first, other, check_dtype=False)


SORTED = pd.DataFrame({"time": range(40), "x": range(40)})
BIG = pd.DataFrame({"user": np.arange(300_000) % 150_000, "spent": 1.0})
TOP = pd.Series([1.0], name="spent")


META = users().drop(columns="user").head(0)


@cache
def of_one_frame():
    few, many = log(), dd.from_pandas(BIG, npartitions=3)
    grouped, spent = few.groupby("user"), few.groupby("user").spent
    return {
        "set_index": (dd.from_pandas(SORTED, 4), lambda df: df.set_index("time"), {}),
        "sort_values": (
            few,
            lambda df: df.sort_values(["spent"], ascending=False),
            {"n": 120},
        ),
        "shuffle": (few, lambda df: df.shuffle("user"), {"n": 4}),
        "groupby_apply": (few, lambda _: spent.apply(top_of, meta=TOP), {"meta": TOP}),
        "groupby_transform": (few, lambda _: spent.transform("sum", meta=TOP), {"meta": TOP}),
        "groupby_median": (few, lambda _: spent.median(), {}),
        "groupby_median of two keys": (
            few,
            lambda df: df.groupby(["user", "kind"]).spent.median(),
            {},
        ),
        "groupby_median among others": (
            few,
            lambda _: grouped.agg({"spent": ["median", "max"], "kind": "count"}),
            {},
        ),
        "groupby_apply without keys": (
            few,
            lambda df: df.groupby("user", group_keys=False).apply(
                first_row, meta=META, include_groups=False
            ),
            {"meta": META, "kwargs": {"include_groups": False}},
        ),
        "groupby_median of several": (few, lambda _: grouped.agg({"spent": "median"}), {}),
        "groupby_nunique": (few, lambda _: grouped.kind.nunique(), {}),
        "groupby_nunique of several": (
            few,
            lambda df: df.groupby(["user", "kind"]).spent.nunique(),
            {},
        ),
        "split_out": (many, lambda df: df.groupby("user").spent.sum(), {}),
        "split_out of agg": (many, lambda df: df.groupby("user").agg({"spent": "max"}), {}),
        "split_out of duplicates": (
            many,
            lambda df: df.drop_duplicates(subset=["user"], split_out=1),
            {},
        ),
        "split_out of unique": (many, lambda df: df.user.unique(split_out=1), {}),
        "split_out of value_counts": (many, lambda df: df.user.value_counts(sort=True), {}),
        "many_small_partitions": (
            log(1).repartition(npartitions=501),
            lambda df: df,
            {},
        ),
        "repartition_size": (few, lambda df: df.repartition(partition_size="1kB"), {}),
        "loc_unknown": (
            dd.from_pandas(SORTED.rename_axis("index"), 4).clear_divisions(),
            lambda df: df.loc[3:9],
            {},
        ),
    }


def top_of(values):
    return values.max()


@pytest.mark.parametrize("name", of_one_frame())
def test_the_suggested_code_has_the_same_result(name):
    frame, step, names = of_one_frame()[name]
    result = step(frame)
    finding = explain_lazily(result).findings[0]
    assert finding.kind == name.partition(" ")[0]
    got = run(finding.instead, df=frame, dd=dd, first_row=first_row, top_of=top_of, **names)
    if finding.kind == "loc_unknown":
        got = got.loc[3:9]
    if finding.kind == "groupby_transform":
        result, got = result.reset_index(drop=True), got.reset_index(drop=True)
    same(got, result)
    assert explain(got).kinds in {(), ("many_small_partitions",), ("shuffle",)}


@pytest.mark.parametrize(
    ("call", "parts"), combinations(["shift(periods=2)", "ffill()", "bfill(limit=1)"], [3, 40])
)
def test_the_suggested_code_keeps_the_order_of_rows(call, parts):
    frame = users()
    frame.loc[frame.index % 3 > 0, "spent"] = np.nan
    rows_in_pandas = eval(f"frame.groupby('user')['spent'].{call}")
    df = dd.from_pandas(frame, npartitions=parts)
    result = eval(f"df.groupby('user')['spent'].{call}".replace("=2", "=2, meta=TOP"))
    finding = explain_lazily(result).findings[0]
    got = run(finding.instead, df=df, meta=TOP).compute()
    pd.testing.assert_series_equal(got.sort_index(), rows_in_pandas.sort_index())


@pytest.mark.parametrize("name", ["set_index", "sort_values", "shuffle", "groupby_median"])
def test_the_persist_code_persists_the_step(name):
    frame, step, names = of_one_frame()[name]
    result = step(frame)
    finding = explain_lazily(result).findings[0]
    kept = run(finding.persist, df=frame, dd=dd, **names)
    same(kept, result)
    assert explain(kept).kinds == ()


JOINS = {
    "inner": lambda left, right: left.merge(right, on="user"),
    "left": lambda left, right: left.merge(right, on="user", how="left"),
    "right": lambda left, right: left.merge(right, on="user", how="right"),
    "outer": lambda left, right: left.merge(right, on="user", how="outer"),
    "other names": lambda left, right: left.merge(
        right.rename(columns={"user": "key"}), left_on="user", right_on="key"
    ),
    "two columns": lambda left, right: left.merge(
        right.assign(spent=1.5), on=["user", "spent"], suffixes=("_left", "_right")
    ),
}


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("how", JOINS)
def test_the_suggested_join_has_the_same_result(how, small, monkeypatch):
    if not small:
        monkeypatch.setattr(joins, "SMALL_SIDE", 10)
    left, right = log(), named()
    result = JOINS[how](left, right)
    finding = explain_lazily(result).findings[0]
    assert finding.kind == "join"
    code = finding.instead
    if code.startswith("# one join"):
        assert how == "two columns"
        return
    if how == "other names":
        right = right.rename(columns={"user": "key"})
    if how == "two columns":
        right = right.assign(spent=1.5)
    got = run(code, left=left, right=right)
    if how == "other names" and not small:  # both keys are columns, the index is the left key
        got = got.reset_index(drop=True)
    kept = run(finding.persist, left=left, right=right)
    same(kept, got, result)
    if small:
        assert ("repartition(npartitions=1)" in code) == (how != "outer")
    assert explain(got).kinds == ()


def test_the_suggested_join_on_an_index_has_the_same_result(monkeypatch):
    monkeypatch.setattr(joins, "SMALL_SIDE", 10)
    left, right = indexed().clear_divisions(), indexed(3)[["kind"]].add_suffix("_r")
    result = left.join(right)
    got = run(explain_lazily(result).findings[0].instead, left=left, right=right)
    same(got, result)
    assert explain(got).kinds == ()


def test_frames_are_stacked_instead_of_interleaved():
    frames = [
        dd.from_pandas(SORTED.set_index(SORTED.index * 10 + start), npartitions=5)
        for start in range(15)
    ]
    result = dd.concat(frames, interleave_partitions=True)
    finding = explain_lazily(result).findings[0]
    assert finding.kind == "interleave"
    stacked = run(finding.instead, dd=dd, frames=frames)
    same(stacked, pd.concat([frame.compute() for frame in frames]))
    if not IS_PANDAS_2:  # with which Dask fails to interleave frames
        same(stacked, result)


def test_aligned_frames_are_sorted_once():
    frame = SORTED.rename_axis("index")
    one = dd.from_pandas(frame, npartitions=4).clear_divisions()
    two = dd.from_pandas(frame, npartitions=3).clear_divisions()
    result = one.mask(two.x > 3)
    finding = explain_lazily(result).findings[0]
    assert finding.kind == "align"
    for code in (finding.instead, finding.persist):
        done = run(code, df=one).mask(run(code, df=two).x > 3)
        assert explain(done).kinds == ()
        same(done, result)


def test_a_frame_is_shuffled_once_for_several_joins():
    left, right, third = log(), named(), named(4).rename(columns={"name": "title"})
    steps = dd.concat([left.merge(right, on="user"), left.merge(third, on="user")])
    finding = next(f for f in explain_lazily(steps).findings if f.kind == "moved_again")
    by_user = run(finding.instead, df=left)
    names, titles = (df.set_index("user").persist() for df in (right, third))
    done = dd.concat([by_user.join(names), by_user.join(titles)])
    assert explain(done).kinds == ()
    same(done.reset_index(), steps)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_the_code_for_shared_and_repeated_work_has_the_same_result(tmp_path):
    by_user = log().set_index("user", npartitions=6)
    first, second = by_user.spent.sum(), by_user.kind.max()
    shared = explain_lazily(first, second).findings[0]
    assert run(shared.instead, dask=dask, first=first, second=second) == (
        users().spent.sum(),
        users().kind.max(),
    )
    users().to_csv(tmp_path / "log.csv", index=False)
    text = dd.read_csv(tmp_path / "log.csv")
    again = explain_lazily(text.spent.sum(), text.user.max()).findings[0]
    code = again.instead.replace(
        "df.to_parquet(folder)", "df.to_parquet(folder, write_index=False)"
    )
    same(run(again.persist, df=text), text)
    same(run(code, df=text, dd=dd, folder=tmp_path / "out"), text)
