"""Size of data given as quantities, files and collections."""

import importlib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.calculator.measure import DataSize, measure
from hyperplane.core.units import UNITS_OF_SIZE
from hyperplane.errors import RequestError


def _fault(data):
    with pytest.raises(RequestError) as caught:
        measure(data)
    [fault] = caught.value.faults
    assert fault.where == "data"
    return fault


class TestQuantities:
    @pytest.mark.parametrize(
        ("data", "size"),
        [
            ("100GB", 100 * 10**9),
            ("4Gi", 4 * 2**30),
            ("1.5 TB", 1_500_000_000_000),
            ("100_000 MB", 10**11),
            ("1e3GB", 10**12),
            ("2000", 2000 * 10**9),
            (100, 10**11),
            (0.5, 500_000_000),
            (Fraction(1, 2), 500_000_000),
            (np.float64(0.5), 500_000_000),
            (np.int64(3), 3 * 10**9),
            ((100, "GB"), 10**11),
            ((100_000_000_000, "B"), 10**11),
            ((2000, "MB"), 2 * 10**9),
            ((1.5, " TB"), 1_500_000_000_000),
            ((np.int64(4), "Gi"), 4 * 2**30),
            (("4", "Gi"), 4 * 2**30),
        ],
    )
    def test_quantities_are_converted_to_bytes(self, data, size):
        assert measure(data) == DataSize(size, "as given")

    @pytest.mark.parametrize("data", ["0GB", "0", 0, 0.0, -5, -0.1, (0, "GB"), 1e-10])
    def test_sizes_of_zero_or_less_are_refused(self, data):
        assert _fault(data).allowed == "a size above 0"

    @pytest.mark.parametrize(
        "data",
        [
            None,
            True,
            False,
            np.True_,
            float("nan"),
            float("inf"),
            -float("inf"),
            np.float64("nan"),
            1e300,
            10**400,
            1j,
            Decimal(5),
            b"100GB",
            "",
            "  ",
            [1, 2],
            {"a": 1},
            {1},
            pytest.param(object(), id="object"),
            int,
            (),
            (5,),
            (5, 5),
            (5, None),
            (5, "GB", "x"),
            (5, "XB"),
            (-5, "GB"),
            (float("nan"), "GB"),
            (float("inf"), "GB"),
            (True, "GB"),
            (None, "GB"),
        ],
        ids=repr,
    )
    def test_other_values_are_refused_with_a_list_of_valid_kinds(self, data):
        fault = _fault(data)
        assert fault.asked == repr(data)[:80]
        for allowed in ("'100GB'", "a number of GB", "(bytes, 'B')", "parquet", "orc", "xarray"):
            assert allowed in fault.allowed

    @pytest.mark.parametrize("data", ["5 parsecs", "100 GX", "lots"])
    def test_text_that_is_neither_a_size_nor_a_path_names_both(self, data):
        fault = _fault(data)
        assert fault.asked == repr(data)
        assert "a size such as '100GB'" in fault.allowed
        assert "path, glob or URL" in fault.allowed

    @pytest.mark.parametrize(
        ("data", "advice"),
        [
            ("5,5GB", "write 5.5GB"),
            ("0,5 GB", "write 0.5 GB"),
            ("2,4", "write 2.4"),
            ("100XB", f"write one of the units {UNITS_OF_SIZE}"),
            ("1EB", f"write one of the units {UNITS_OF_SIZE}"),
            ("-5GB", "write a size above 0"),
        ],
    )
    def test_a_size_with_an_error_is_not_treated_as_a_path(self, data, advice):
        fault = _fault(data)
        assert (fault.asked, fault.advice) == (repr(data), advice)
        assert "found" not in fault.allowed

    def test_a_file_may_be_named_like_a_size_with_an_error(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("5,5GB").mkdir()
        pd.DataFrame({"n": range(10)}).to_parquet("5,5GB/a.parquet")
        assert "Parquet" in measure("5,5GB").how


class TestFiles:
    def test_a_list_of_paths_is_the_sum_of_its_files(self, tmp_path):
        for name in ("a", "b", "c"):
            pd.DataFrame({"n": range(1000), "s": name}).to_csv(tmp_path / f"{name}.csv")
        size = measure(tmp_path / "a.csv").size
        both = [tmp_path / "a.csv", str(tmp_path / "b.csv")]
        for paths in (both, tuple(both), [tmp_path / "[ab].csv"], [*both, *both]):
            assert measure(paths).size == pytest.approx(2 * size, rel=0.01)
            assert measure(paths).how.startswith("2 CSV files")
        assert measure([tmp_path]).size == measure(tmp_path).size

    def test_invalid_items_of_a_list_are_faults(self, tmp_path):
        pd.DataFrame({"n": range(10)}).to_csv(tmp_path / "a.csv")
        pd.DataFrame({"n": range(10)}).to_parquet(tmp_path / "b.parquet")
        assert "no.csv" in _fault([tmp_path / "a.csv", str(tmp_path / "no.csv")]).asked
        several = _fault([tmp_path / "a.csv", tmp_path / "b.parquet"])
        assert several.asked.startswith("csv (")
        assert "files of one format" in several.allowed
        for data in (["100GB"], [str(tmp_path / "a.csv"), " "], [str(tmp_path / "a.csv"), 3], []):
            assert "a size such as '100GB'" in _fault(data).allowed

    def test_a_path_may_be_text_or_a_path(self, tmp_path):
        pd.DataFrame({"a": range(1000)}).to_parquet(tmp_path / "a.parquet")
        measured = measure(tmp_path / "a.parquet")
        assert measured == measure(str(tmp_path / "a.parquet"))
        assert measured.size > 0
        assert measured.how.startswith("footers of 1 Parquet file")

    def test_empty_data_counts_as_one_byte(self, tmp_path):
        (tmp_path / "a.csv").touch()
        assert measure(tmp_path / "a.csv").size == 1
        assert hyperplane.size_cluster(tmp_path / "a.csv").nodes == 1

    def test_a_missing_path_is_a_fault(self):
        assert "none were found" in _fault(Path("no/such/place")).allowed


FRAME = pd.DataFrame({"id": range(1000), "name": ["alpha", "beta"] * 500})


class TestCollections:
    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (FRAME, "DataFrame of pandas"),
            (FRAME["name"], "Series of pandas"),
            (FRAME["name"].astype(object), "Series of pandas"),
            (FRAME.index, "Index of pandas"),
            (FRAME.set_index(["id", "name"]).index, "Index of pandas"),
        ],
    )
    def test_pandas_objects_have_their_deep_memory_usage(self, data, kind):
        measured = measure(data)
        assert measured.size == np.sum(data.memory_usage(deep=True))
        assert measured.how.startswith(f"{kind}, ")
        assert type(measured.size) is int

    def test_an_empty_frame_counts_as_one_byte(self):
        assert measure(pd.DataFrame(index=pd.RangeIndex(0))).size >= 1

    def test_numpy_arrays_have_their_nbytes(self):
        assert measure(np.ones((100, 10))) == DataSize(8000, "ndarray of numpy, 8 kB")
        assert measure(np.ones(0)).size == 1

    def test_xarray_objects_have_their_nbytes(self):
        xarray = importlib.import_module("xarray")
        data = xarray.Dataset({"t": (("y", "x"), np.ones((50, 40)))}, {"x": np.arange(40)})
        assert measure(data).size == data.nbytes == 50 * 40 * 8 + 40 * 8
        assert measure(data.t).how.startswith("DataArray of xarray, ")
        assert measure(data.chunk({"y": 10})).size == data.nbytes

    def test_a_dask_array_is_not_computed(self):
        import dask.array as da

        data = da.from_delayed(dask.delayed(_never)(), (1000, 100), "f4")
        assert measure(data) == DataSize(400_000, "Array of dask.array, 400 kB")

    def test_a_dask_array_of_unknown_shape_is_a_fault_with_advice(self):
        import dask.array as da

        data = da.ones(10, chunks=5)
        fault = _fault(data[data > 0])
        assert "compute_chunk_sizes()" in fault.advice


def _never():
    raise AssertionError("computed")


class TestDaskDataframes:
    @pytest.mark.parametrize("partitions", [1, 2, 3])
    def test_all_of_a_few_partitions_are_computed(self, partitions):
        import dask.dataframe as dd

        parts = [FRAME.head(100 * (number + 1)) for number in range(partitions)]
        data = dd.from_map(lambda part: part, parts, meta=FRAME.head(0))
        assert measure(data).size == sum(int(p.memory_usage(deep=True).sum()) for p in parts)

    def test_three_of_many_partitions_are_computed(self):
        import dask.dataframe as dd

        seen = set()

        def part(number):
            seen.add(number)
            return FRAME.head(100 + 10 * number)

        data = dd.from_map(part, range(11), meta=FRAME.head(0))
        measured = measure(data)
        assert seen == {0, 5, 10}
        true = sum(part(number).memory_usage(deep=True).sum() for number in range(11))
        assert measured.size == pytest.approx(true, rel=0.25)
        assert measured.how.startswith("DataFrame of dask.dataframe, ")

    def test_a_dask_series_and_index_are_estimated(self):
        import dask.dataframe as dd

        data = dd.from_pandas(FRAME, npartitions=4)
        wanted = FRAME["name"].memory_usage(deep=True)
        assert measure(data["name"]).size == pytest.approx(wanted, rel=0.25)
        assert measure(data.index).size >= 1

    def test_a_bag_is_estimated_from_its_first_partition(self):
        import dask.bag as db

        data = db.from_sequence(["x" * 1000] * 40, npartitions=4)
        measured = measure(data)
        assert measured.size == pytest.approx(40 * 1000, rel=0.25)
        assert measured.how.startswith("Bag of dask.bag, ")
        assert measure(db.Bag({}, "empty", 0)).size == 1


def test_the_advice_shows_how_the_data_was_measured():
    advice = hyperplane.size_cluster(np.ones(10**6), "filter")
    assert advice.data_gb == 0.008
    assert advice.to_dict()["measured"] == "ndarray of numpy, 8 MB"
    assert "8 MB (ndarray of numpy, 8 MB)" in str(advice)


def test_a_delayed_is_refused_and_can_be_forecast():
    assert _fault(dask.delayed(pd.DataFrame)({"x": [1]})).advice.startswith("hyperplane.forecast")
