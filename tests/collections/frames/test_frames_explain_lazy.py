"""`explain` computes nothing, for any collection."""

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.dataframe.dask_expr._expr import Blockwise
from dask.dataframe.dask_expr._merge import Merge
from dask.dataframe.dask_expr._repartition import Repartition
from dask.dataframe.dask_expr._shuffle import divisions_lru
from explain_frames import expect_no_finding, explain_lazily, find_only, indexed, log, named, users

META = users().head(0)


def broken(number, columns=None):
    raise AssertionError("a partition was made")


def source(parts=6, divisions=None):
    """Return a source whose partitions fail when computed."""
    return dd.from_map(broken, range(parts), meta=META, divisions=divisions)


STEPS = {
    "set_index": (lambda: source().set_index("user"), {"set_index"}),
    "sort_values": (lambda: source().sort_values("spent"), {"sort_values"}),
    "after set_index": (
        lambda: source().set_index("user")[["spent"]].spent.sum(),
        {"set_index"},
    ),
    "filter after set_index": (
        lambda: (lambda df: df[df.spent > 3])(source().set_index("user")),
        {"set_index"},
    ),
    "set_index of a series": (
        lambda: (lambda df: df.set_index(df.user % 3))(source()),
        {"set_index"},
    ),
    "repartition after set_index": (
        lambda: source().set_index("user", npartitions=6).repartition(npartitions=3),
        {"set_index"},
    ),
    "join of set_index": (
        lambda: (
            source()
            .set_index("user", npartitions=6)
            .merge(source(3).set_index("user", npartitions=3), left_index=True, right_index=True)
        ),
        {"set_index"},
    ),
    "group-by apply after set_index": (
        lambda: (
            source()
            .set_index("user", npartitions=6)
            .groupby("user")
            .spent.apply(len, meta=("spent", int))
        ),
        {"set_index"},
    ),
    "sort and set_index": (
        lambda: source().sort_values("spent").set_index("user"),
        {"set_index", "sort_values"},
    ),
    "join": (lambda: source().merge(source(3), on="user"), {"join"}),
    "group-by sorted and split": (
        lambda: source().groupby("user", sort=True).spent.sum(split_out=4),
        set(),
    ),
    "repartition by size": (
        lambda: source().repartition(partition_size="1MB").spent.sum(),
        {"repartition_size"},
    ),
    "merge_asof": (
        lambda: dd.merge_asof(
            source(4, range(5)), source(2, [0, 2, 4]), left_index=True, right_index=True
        ),
        set(),
    ),
    "length": (lambda: source().size, set()),
    "quantile": (lambda: source().spent.quantile(0.3), set()),
}


@pytest.mark.parametrize("name", STEPS)
def test_no_partition_is_computed(name):
    make, kinds = STEPS[name]
    known = dict(divisions_lru)
    with dask.config.set(scheduler="sync"):
        frame = make()
    assert set(explain_lazily(frame).kinds) == kinds
    assert dict(divisions_lru) == known


def test_a_join_on_an_index_that_is_not_computed_reports_only_set_index():
    other = indexed(3)[["kind"]].add_suffix("_r").expr
    join = Merge(log().set_index("user").expr, other, left_index=True, right_index=True)
    find_only("set_index", dd.DataFrame(join))


INDEXES = {
    "whole numbers": range(40),
    "numbers": np.linspace(0, 1, 40),
    "texts": [f"t{n:02}" for n in range(40)],
    "times": pd.date_range("2024", periods=40),
    "times of a zone": pd.date_range("2024", periods=40, tz="Europe/Berlin"),
}


@pytest.mark.parametrize("how", ["inner", "outer"])
@pytest.mark.parametrize("name", INDEXES)
def test_unknown_divisions_compare_with_those_of_any_type(name, how):
    frame = pd.DataFrame({"key": INDEXES[name], "x": 1.0})
    uncomputed = dd.from_pandas(frame, npartitions=4).set_index("key").expr
    computed = dd.from_pandas(frame.set_index("key").add_suffix("_r"), npartitions=3).expr
    for left, right in ((uncomputed, computed), (computed, uncomputed)):
        join = Merge(left, right, how=how, left_index=True, right_index=True)
        find_only("set_index", dd.DataFrame(join))
    find_only("set_index", dd.DataFrame(Repartition(uncomputed, new_partitions=7)))
    find_only("set_index", dd.DataFrame(Repartition(uncomputed, new_partitions=2)))


def test_divisions_computed_by_dask_are_used():
    frame = log().set_index("spent")
    assert frame.npartitions == 6  # Dask computes quantiles here and finds that rows are sorted
    finding = find_only("set_index", frame)
    assert finding.instead == "df = df.set_index('spent', sorted=True)"
    assert "they were" in finding.why


ARROW = {"filesystem": "arrow"}


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("options", [{}, ARROW, {**ARROW, "calculate_divisions": True}])
def test_footers_are_read_without_dask(tmp_path, options):
    for part in range(3):
        indexed().partitions[part].compute().to_parquet(tmp_path / f"{part}.parquet")
    frame = dd.read_parquet(tmp_path, **options)
    expect_no_finding(frame.size)
    expect_no_finding(frame[frame.spent > 3].spent.sum())
    finding = find_only("sort_values", frame.sort_values("spent"))
    assert "unknown" not in finding.size


def test_a_source_whose_partitions_cannot_be_counted_is_noted(tmp_path):
    users().to_parquet(tmp_path / "log.parquet")
    frame = dd.read_parquet(tmp_path, filesystem="arrow", calculate_divisions=True)
    explanation = explain_lazily(frame.spent.sum())  # there is no index for the statistics
    assert explanation.partitions == 0
    assert any("not counted, because of ValueError" in note for note in explanation.notes)


class Foreign(Blockwise):
    """A step of another package."""

    _parameters = ["frame"]  # noqa: RUF012

    @property
    def _meta(self):
        return self.frame._meta

    def _simplify_up(self, parent, dependents):
        raise LookupError("s3://user:secret@host")


def test_a_step_that_cannot_be_simplified_is_examined_as_written():
    step = Foreign(log().set_index("user").expr)
    explanation = explain_lazily(dd.DataFrame(step)[["spent"]].assign(x=1))
    assert explanation.kinds == ("set_index",)
    assert explanation.notes == (
        "examined as written, without Dask's simplification, because of LookupError",
    )


class Puzzling(Blockwise):
    """A step that fails when its partitions are counted."""

    _parameters = ["frame"]  # noqa: RUF012

    @property
    def _meta(self):
        return self.frame._meta

    def _divisions(self):
        raise ZeroDivisionError


def test_a_step_whose_partitions_cannot_be_counted_is_noted():
    explanation = explain_lazily(
        dd.DataFrame(Puzzling(log().expr)).merge(named(), on="user", npartitions=3)
    )
    assert any("ZeroDivisionError" in note for note in explanation.notes)


def array_frame():
    data = xr.Dataset({"x": ("t", np.arange(8.0))}, {"t": np.arange(8)}).chunk(t=4)
    return data.to_dask_dataframe()


OTHER_SOURCES = {
    "from_map": lambda: dd.from_map(lambda n: pd.DataFrame({"x": [n]}), [1, 2]),
    "from_map with columns": lambda: dd.from_map(
        lambda n, columns=None: pd.DataFrame({"x": [n], "y": [n]})[columns or ["x", "y"]], [1, 2]
    )[["y"]],
    "from_delayed": lambda: dd.from_delayed(
        [dask.delayed(users)(), dask.delayed(users)()], meta=META
    ),
    "from_graph": lambda: dd.from_graph({("a", 0): users()}, META, (None, None), [("a", 0)], "a"),
    "persisted": lambda: log().persist(),
    "from_array": lambda: dd.from_array(np.arange(12).reshape(6, 2), chunksize=2),
    "from_dask_array": lambda: dd.from_dask_array(
        da.ones((6, 2), chunks=(3, 2)), columns=["a", "b"]
    ),
    "xarray": array_frame,
    "bag": lambda: db.from_sequence([{"a": 1}, {"a": 2}], npartitions=2).to_dataframe(
        meta={"a": int}
    ),
    "from_dict": lambda: dd.from_dict({"a": [1, 2, 3]}, npartitions=2),
    "to_delayed and back": lambda: dd.from_delayed(
        log().to_delayed(), meta=META, verify_meta=False
    ),
    "index": lambda: log().index,
    "several column levels": lambda: dd.from_pandas(
        users().groupby(["user", "kind"]).spent.sum().unstack(), npartitions=2
    ),
    "several index levels": lambda: log().groupby(["user", "kind"]).spent.sum().reset_index(),
    "two columns of a name": lambda: dd.from_pandas(
        pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), npartitions=2
    ),
    "no rows": lambda: dd.from_pandas(META, npartitions=1),
    "no columns": lambda: dd.from_pandas(users()[[]], npartitions=2),
}


@pytest.mark.parametrize("name", OTHER_SOURCES)
def test_other_sources_are_supported(name):
    expect_no_finding(OTHER_SOURCES[name]())
