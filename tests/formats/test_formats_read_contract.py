"""Every built-in format keeps the contract of reading."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from read_contract import ReadContract

from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead


class TestParquet(ReadContract):
    name, suffix = "parquet", ".parquet"

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        parquet.write_table(pa.Table.from_pandas(frame), path, row_group_size=300)

    def read_back(self, path: Path) -> pd.DataFrame:
        return pd.read_parquet(path)


class TestOrc(ReadContract):
    name, suffix = "orc", ".orc"

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        # Batches are the smallest stripes.
        orc.write_table(table, path, batch_size=100, stripe_size=1000)

    def read_back(self, path: Path) -> pd.DataFrame:
        return pd.read_orc(path)


class TestCsv(ReadContract):
    name, suffix = "csv", ".csv"
    takes_any_bytes = True

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_csv(path, index=False)

    def read_back(self, path: Path) -> pd.DataFrame:
        return pd.read_csv(path)

    def damage(self, path: Path) -> None:
        path.write_text(path.read_text().replace("\n", ',1,2,3,"\n', 3))


class TestTabSeparated(TestCsv):
    suffix = ".tsv"
    options_without_suffix = MappingProxyType({"separator": "\t"})

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_csv(path, index=False, sep="\t")

    def read_back(self, path: Path) -> pd.DataFrame:
        return pd.read_csv(path, sep="\t")

    def damage(self, path: Path) -> None:
        path.write_text(path.read_text().replace("\n", '\t1\t2\t3\t"\n', 3))


class TestJsonLines(ReadContract):
    name, suffix = "jsonl", ".jsonl"
    has_columns_without_rows = False
    columns_may_differ = True

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        frame.to_json(path, orient="records", lines=True)
        if frame.empty:
            path.write_text("")

    def read_back(self, path: Path) -> pd.DataFrame:
        return pd.read_json(path, lines=True)


class TestAvro(ReadContract):
    name, suffix = "avro", ".avro"

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        fastavro = pytest.importorskip("fastavro")
        kinds = {"int64": "long", "float64": "double", "bool": "boolean"}
        fields = [
            {"name": name, "type": ["null", kinds.get(str(dtype), "string")]}
            for name, dtype in frame.dtypes.items()
        ]
        records = [
            {name: None if pd.isna(value) else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
        schema = {"type": "record", "name": "row", "fields": fields}
        with path.open("wb") as opened:
            fastavro.writer(opened, schema, records, sync_interval=2000)

    def read_back(self, path: Path) -> pd.DataFrame:
        fastavro = pytest.importorskip("fastavro")
        with path.open("rb") as opened:
            return pd.DataFrame(list(fastavro.reader(opened)))


def test_every_format_that_is_read_has_a_subclass() -> None:
    tested = {
        contract.name for contract in (TestParquet, TestOrc, TestCsv, TestJsonLines, TestAvro)
    }
    assert tested == set(registry.list_formats(SupportsRead, built_in=True)[0])
