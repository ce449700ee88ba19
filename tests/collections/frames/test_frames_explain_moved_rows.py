"""A step is reported if and only if it moves rows in the expression that Dask runs."""

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from dask.dataframe.dask_expr._expr import Blockwise
from dask.dataframe.dask_expr._groupby import HolisticGroupbyAggregation
from dask.dataframe.dask_expr._merge import BroadcastJoin, HashJoinP2P
from dask.dataframe.dask_expr._reductions import Aggregate, Chunk
from dask.dataframe.dask_expr._repartition import RepartitionToFewer
from dask.dataframe.dask_expr._shuffle import SimpleShuffle
from explain_frames import explain_lazily, log, named, users
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scale import scaled

MOVING = {"set_index", "sort_values", "shuffle", "join", "align"}
GROUPS = {"groupby_apply", "groupby_transform", "groupby_ffill", "groupby_median"}


def moves(collection):
    """Return whether the lowered expression shuffles rows, other than results of reductions."""
    with dask.config.set(scheduler="sync"):
        plan = collection.expr.optimize(fuse=False)
    copied = {
        _top(join.left if join.broadcast_side == "left" else join.right)
        for join in plan.find_operations(BroadcastJoin)
    }
    return any(
        isinstance(step, HashJoinP2P)
        or (
            step._name not in copied  # the small side before its broadcast
            and _before(step).npartitions > 1
            and _of_rows(_before(step))
        )
        for step in plan.find_operations((SimpleShuffle, HashJoinP2P))
    )


def _top(step):
    """Return the shuffle below a step with only blockwise steps between, or None."""
    while isinstance(step, Blockwise) and step.dependencies():
        step = step.dependencies()[0]
    return step._name


def _before(shuffle):
    """Return the input of a shuffle, without repartitions before it."""
    frame = shuffle.frame
    return frame.frame if isinstance(frame, RepartitionToFewer) else frame


def _of_rows(step):
    while isinstance(step, Blockwise) and step.dependencies():
        if isinstance(step, Chunk) and not isinstance(step, Aggregate):
            return step.kind is HolisticGroupbyAggregation
        step = step.dependencies()[0]
    return True


def named_as_moving(collection):
    return bool(set(explain_lazily(collection).kinds) & (MOVING | GROUPS))


def kept(group):
    """Return a group unchanged, with its key."""
    return group.assign(kind="buy")[["user", "spent", "kind"]]


def some(frame):
    """Repartition to four if there are several, so that Dask knows the number."""
    return None if frame.npartitions == 1 else 4


KEYED = named(3).assign(user=named(3).user % 5)
LINKS = {
    "filter": lambda df: df[df.spent > 3],
    "assign": lambda df: df.assign(spent=df.spent + df.user),
    "select": lambda df: df[["user", "spent", "kind"]],
    "fewer": lambda df: df.repartition(npartitions=2),
    "one": lambda df: df.repartition(npartitions=1),
    "more": lambda df: df.repartition(npartitions=5),
    "duplicates": lambda df: df.drop_duplicates(),
    "set_index": lambda df: df.set_index("user", npartitions=some(df)).reset_index(),
    "sort": lambda df: df.sort_values("user", npartitions=some(df)),
    "shuffle": lambda df: df.shuffle("user"),
    "join": lambda df: df.merge(KEYED[["user"]], on="user"),
    "left join": lambda df: df.merge(KEYED[["user"]], on="user", how="left"),
    "outer join": lambda df: df.merge(KEYED[["user"]].drop_duplicates(), on="user", how="outer"),
    "join to one": lambda df: df.merge(named(1)[["user"]], on="user"),
    "join to few": lambda df: df.repartition(npartitions=70).merge(named(2)[["user"]], on="user"),
    "whole groups": lambda df: df.groupby("kind", group_keys=False).apply(
        kept, meta=users().head(0), include_groups=False
    ),
    "concat": lambda df: dd.concat([df, log(2)]),
}
ENDS = {
    "frame": lambda df: df,
    "sum": lambda df: df.spent.sum(),
    "head": lambda df: df.head(2, compute=False),
    "groups": lambda df: df.groupby("user").spent.mean(),
    "split": lambda df: df.groupby("user").spent.sum(split_out=2),
    "median": lambda df: df.groupby("user").agg({"spent": "median"}),
    "filled": lambda df: df.groupby("kind").spent.ffill(),
    "values": lambda df: df.kind.unique(),
}


@settings(max_examples=scaled(10, 40))
@given(
    method=st.sampled_from(["tasks", "disk"]),
    parts=st.integers(1, 7),
    links=st.lists(st.sampled_from(sorted(LINKS)), max_size=4),
    end=st.sampled_from(sorted(ENDS)),
)
@example("tasks", 1, ["join to few", "duplicates"], "median")  # a broadcast join when lowered
def test_a_chain_is_named_as_moving_if_and_only_if_it_moves(method, parts, links, end):
    # Dask sorts a single partition in place, but reports the requested number of partitions.
    assume("sort" not in links or not {"one", "fewer"} & set(links))
    # Dask raises TypeError for these when the partitions are counted.
    assume("duplicates" not in links or not ({"whole groups"} & set(links) or end == "filled"))
    with dask.config.set({"dataframe.shuffle.method": method}):
        frame = log(parts)
        for link in links:
            frame = LINKS[link](frame)
        frame = ENDS[end](frame)
        found = named_as_moving(frame)
        assert found == moves(frame), f"{links} {end}: {explain_lazily(frame)}"


TWO = {
    "join": lambda one, two, how: one.merge(two, left_index=True, right_index=True, how=how),
    "column to index": lambda one, two, how: one.merge(
        two, left_on="user_l", right_index=True, how=how
    ),
    "columns": lambda one, two, how: one.merge(two, left_on="user_l", right_on="user_r", how=how),
}


def side(kind, suffix, parts):
    frame = users()
    by_user = frame.assign(key=frame.user).set_index("key").sort_index().add_suffix(suffix)
    result = dd.from_pandas(by_user, npartitions=parts)
    return result.clear_divisions() if kind == "unknown" else result


@settings(max_examples=scaled(10, 40))
@given(
    method=st.sampled_from(["tasks", "p2p"]),
    call=st.sampled_from(sorted(TWO)),
    how=st.sampled_from(["inner", "left", "right", "outer"]),
    kinds=st.tuples(*[st.sampled_from(["known", "unknown"])] * 2),
    parts=st.tuples(*[st.sampled_from([1, 2, 3, 8, 40])] * 2),
)
def test_a_join_is_reported_if_and_only_if_it_moves_a_large_side(method, call, how, kinds, parts):
    with dask.config.set({"dataframe.shuffle.method": method}):
        one, two = (side(kinds[n], "_lr"[0] + "_lr"[n + 1], parts[n]) for n in (0, 1))
        joined = TWO[call](one, two, how)
        copied = joined.expr.is_broadcast_join  # the small side moves, the large side does not
        assert named_as_moving(joined) == (moves(joined) and not copied)


@pytest.mark.parametrize("known", [True, False])
def test_arithmetic_is_reported_if_and_only_if_it_moves_rows(known):
    one = dd.from_pandas(users(), npartitions=4)
    two = dd.from_pandas(pd.concat([users()] * 2).sort_index(), npartitions=3)
    if not known:
        one, two = one.clear_divisions(), two.clear_divisions()
    aligned = one.spent.where(two.spent > 3)
    assert named_as_moving(aligned) == moves(aligned) == (not known)
