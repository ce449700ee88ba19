"""Workarounds for bugs in Dask: tokens of frames, the cache of expressions, locks of properties."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import weakref

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from dask._expr import SingletonExpr
from dask.base import tokenize
from scale import scaled

import hyperplane  # noqa: F401 - installs the workarounds

FRAME = pd.DataFrame({"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]})
#: Frames that differ from FRAME; the first two have the same values in different columns.
DIFFERENT_FRAMES = {
    "other columns": pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0], "c": [5, 6]}),
    "other order": FRAME[["a", "c", "b"]].set_axis(FRAME.columns, axis=1),
    "other names": FRAME.set_axis(["a", "b", "d"], axis=1),
    "other index": FRAME.set_axis([1, 2], axis=0),
    "another type": FRAME.astype({"a": "float64"}),
    "a nullable type": FRAME.astype({"a": "Int64"}),
    "a sparse type": FRAME.astype({"a": pd.SparseDtype("int64", 0)}),
}


@pytest.mark.parametrize("other", DIFFERENT_FRAMES.values(), ids=DIFFERENT_FRAMES)
def test_different_frames_have_different_tokens(other):
    assert tokenize(FRAME) == tokenize(FRAME.copy())
    assert tokenize(FRAME) != tokenize(other)
    with dask.config.set(scheduler="sync"):
        # Both collections exist at once: Dask reuses the data of expressions with equal tokens.
        collections = [dd.from_pandas(frame, npartitions=1) for frame in (FRAME, other)]
        pd.testing.assert_frame_equal(collections[0].compute(), FRAME)
        pd.testing.assert_frame_equal(collections[1].compute(), other)
        pd.testing.assert_frame_equal(collections[1].persist().compute(), other)


def test_exchanged_columns_of_one_name_have_different_tokens():
    frame = pd.DataFrame([[1, 2.0], [3, 4.0]], columns=["a", "a"])
    assert tokenize(frame) != tokenize(frame.iloc[:, ::-1])


BEFORE = ["", "import pandas", "import dask.base, pandas; dask.base.tokenize(pandas.DataFrame())"]
AFTER = ["", "import dask.dataframe"]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("before", "after"),
    scaled(
        # Without dask.dataframe where possible, as its import takes most of the time.
        [(BEFORE[0], AFTER[0]), (BEFORE[1], AFTER[1]), (BEFORE[2], AFTER[0])],
        list(itertools.product(BEFORE, AFTER)),
    ),
)
def test_tokens_do_not_depend_on_the_order_of_imports(before, after):
    program = f"""{before}
import hyperplane
{after}
import pandas as pd
from dask.base import tokenize
# The first lookup of such types makes Dask register its own functions.
tokenize(pd.DataFrame({{"text": ["x"], "time": pd.to_datetime(["2026-01-01"], utc=True)}}))
one = pd.DataFrame({{"a": [1, 2], "b": [5, 6], "c": [3.0, 4.0]}})
print(tokenize(one) != tokenize(one[["a", "c", "b"]].set_axis(one.columns, axis=1)))
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"


@pytest.mark.parametrize("types", [("str", "string"), ("string", object), ("bool", "boolean")])
def test_equal_values_of_two_types_have_different_tokens(types):
    value = True if "bool" in types else "x"
    one, other = (pd.DataFrame({"a": pd.Series([value], dtype=dtype)}) for dtype in types)
    assert tokenize(one) != tokenize(other)


class CacheWithRace(weakref.WeakValueDictionary):
    """Cache in which another thread drops the last reference between test and lookup."""

    def __init__(self, races: int) -> None:
        super().__init__()
        self.races = races

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        if found and self.races:
            self.races -= 1
            del self[name]
        return found


class CacheWithoutEntries(dict):
    """Cache that claims to contain every entry, and whose lookups always fail."""

    def __contains__(self, name: object) -> bool:
        return True


class NumberExpr(SingletonExpr):
    _parameters = ["number"]  # noqa: RUF012 - as Dask declares it


def test_an_expression_collected_during_a_lookup_is_created_again():
    NumberExpr._instances = CacheWithRace(2)
    first = NumberExpr(1)
    with pytest.raises(KeyError):  # Dask without the workaround
        SingletonExpr.__new__.__wrapped__(NumberExpr, 1)
    first = NumberExpr(1)
    second = NumberExpr(1)
    assert second is not first
    assert (second.number, second._name) == (1, first._name)
    assert NumberExpr(1) is second


def test_a_key_error_of_another_cause_is_raised():
    NumberExpr._instances = CacheWithoutEntries()
    with pytest.raises(KeyError):
        NumberExpr(1)


def test_threads_create_and_drop_equal_expressions():
    NumberExpr._instances = weakref.WeakValueDictionary()
    errors = []

    def work() -> None:
        try:
            for number in range(3000):
                assert NumberExpr(number % 3).number == number % 3
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


DIVISIONS = """
import faulthandler
import sys

IMPORTS

import pandas as pd
from distributed import Client, LocalCluster


def create_part(number):
    return pd.DataFrame({"key": range(1000), "value": 1.0})


if __name__ == "__main__":
    faulthandler.dump_traceback_later(60, exit=True)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        parts = dd.from_map(create_part, range(4)).repartition(partition_size="8 kB")
        rows = parts.set_index("key")
        print(len(rows.compute()), rows.npartitions > 4)
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("first", ["hyperplane", "dask.dataframe"])
def test_divisions_that_are_computed_do_not_wait_for_the_scheduler(tmp_path, first):
    imports = sorted(
        ["import hyperplane", "import dask.dataframe as dd"], key=lambda line: first not in line
    )
    program = tmp_path / "program.py"
    program.write_text(DIVISIONS.replace("IMPORTS", "\n".join(imports)))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "4000 True\n", done.stderr
