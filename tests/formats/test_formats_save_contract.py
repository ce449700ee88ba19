"""The contract of saving, for each format, and for a format of another package."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from types import MappingProxyType

import dask.dataframe as dd
import fastavro
import pandas as pd
import pyarrow as pa
import pytest
from pandas_versions import REFUSED_AS_TEXT
from save_contract import RecordsContract, SaveContract
from saving_cases import in_this_thread

import hyperplane
from hyperplane.core import registry as registries
from hyperplane.errors import RequestError, StorageError
from hyperplane.formats import registry
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.pandas_frames.to_arrow import to_arrow
from hyperplane.storage.object_kinds import list_formats

_here = pytest.fixture(autouse=True)(in_this_thread)

#: Kinds of columns that text and JSON do not hold, and those that CSV does not hold.
NO_TEXT = {"mixed", "complex", "interval", "arrow binary", "bytes"}
NESTED = {"arrow list", "list", "list of text", "record", "drifting record"}


class TestParquet(SaveContract, RecordsContract):
    name = "parquet"
    refused = frozenset({"mixed", "complex"})

    def read_with_another_library(self, path):
        return pd.read_parquet(path)


class TestCsv(SaveContract):
    name = "csv"
    refused = frozenset(NO_TEXT | NESTED | REFUSED_AS_TEXT)
    has_types = False

    def read_with_another_library(self, path):
        return pd.read_csv(path, keep_default_na=False)

    def may_be_refused(self, kinds):
        # With one column missing values and empty text are the same.
        return len(kinds[0]) == 1 or super().may_be_refused(kinds)


class TestTsv(TestCsv):
    name = "tsv"

    def read_with_another_library(self, path):
        return pd.read_csv(path, sep="\t", keep_default_na=False)


class TestJsonLines(SaveContract, RecordsContract):
    name = "jsonl"
    refused = frozenset(NO_TEXT | {"infinite"} | REFUSED_AS_TEXT)
    has_types = False
    refused_item = frozenset({1})

    def read_with_another_library(self, path):
        return pd.read_json(path, lines=True)


class TestAvro(SaveContract, RecordsContract):
    name = "avro"
    refused = frozenset({"mixed", "complex", "interval", "period", "week", "uint64", "UInt64"})

    def read_with_another_library(self, path):
        with path.open("rb") as file:
            return pd.DataFrame(fastavro.reader(file))

    def may_be_refused(self, kinds):
        # Parts whose dicts have other keys have other schemas.
        has_dicts = any("drifting record" in part_kinds.values() for part_kinds in kinds)
        return has_dicts or super().may_be_refused(kinds)

    def is_name(self, name):
        return name.isidentifier() and name.isascii()


class TestOrc(SaveContract, RecordsContract):
    name = "orc"
    refused = frozenset({"mixed", "complex", "interval", "period", "week"})

    def read_with_another_library(self, path):
        return pd.read_orc(path)


class TestText(RecordsContract):
    name = "text"
    items = ("a", " b\u2028")
    refused_item = "two\nlines"


class FeatherFormat:
    """A format as another package would define it."""

    name = "feather"
    suffixes = ()
    saved_suffixes = (".feather",)
    read_arguments = MappingProxyType({"format": "feather"})

    def encode_table(self, table):
        arrow = to_arrow(table, "Feather")
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, arrow.schema) as writer:
            writer.write_table(arrow)
        return EncodedFile(out.getvalue().to_pybytes(), arrow.num_rows, arrow)

    def decode_table(self, data, schema):
        return pa.ipc.open_file(data).read_all()


class InPlaceOfParquet(FeatherFormat):
    """A format of another package that claims the name and suffix of one of ours."""

    saved_suffixes = (".parquet",)


class TestFormatOfAnotherPackage(SaveContract):
    name = "feather"
    refused = frozenset({"mixed", "complex"})

    @pytest.fixture(autouse=True)
    def _entry_points(self, monkeypatch):
        points = {
            "feather": "FeatherFormat",
            "parquet": "InPlaceOfParquet",
            "other": "InPlaceOfParquet",
            "broken": "NoSuchClass",
        }
        group = registry.FORMATS.group
        entry_points = EntryPoints(
            [EntryPoint(name, f"{__name__}:{value}", group) for name, value in points.items()]
        )
        monkeypatch.setattr(
            registries, "entry_points", lambda group: entry_points.select(group=group)
        )

    def read_with_another_library(self, path):
        return pd.read_feather(path)

    def test_built_in_formats_keep_their_names_and_suffixes(self, tmp_path):
        hyperplane.save(pd.DataFrame({"n": [1]}), tmp_path / "a.parquet")
        assert pd.read_parquet(tmp_path / "a.parquet").n.to_list() == [1]
        hyperplane.save(pd.DataFrame({"n": [1]}), tmp_path / "b", format="parquet")
        assert pd.read_parquet(tmp_path / "b").n.to_list() == [1]

    def test_saved_data_is_not_loaded_without_the_package_of_its_format(
        self, tmp_path, monkeypatch
    ):
        frame = dd.from_pandas(pd.DataFrame({"n": [1]}), npartitions=1)
        hyperplane.save(frame, tmp_path / "out", format="feather")
        monkeypatch.setattr(registries, "entry_points", lambda group: EntryPoints())
        with pytest.raises(StorageError, match=r"the format 'feather', which is not installed"):
            hyperplane.load(tmp_path / "out")

    def test_a_class_that_cannot_be_imported_is_named(self, tmp_path):
        with pytest.raises(RequestError, match="NoSuchClass"):
            hyperplane.save(pd.DataFrame({"n": [1]}), tmp_path / "a", format="broken")


@pytest.mark.parametrize("kind", ["dataframe", "bag"])
def test_every_format_has_a_test_class(kind):
    contract = SaveContract if kind == "dataframe" else RecordsContract
    tested = {
        value.name
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, contract) and hasattr(value, "name")
    }
    assert set(list_formats(kind)) <= tested
