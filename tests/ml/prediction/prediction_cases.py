"""A saved model with input files, and the lines of outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Flights:
    """A saved model, and input files with one row that the model refuses in each."""

    folder: Path
    model: Any
    frames: list[pd.DataFrame]
    refused: int

    @property
    def url(self) -> Path:
        return self.folder / "model"

    def write(self, data_format: str) -> str:
        """Write the frames in a format, and return their glob."""
        for number, frame in enumerate(self.frames):
            path = self.folder / f"part-{number}.{data_format}"
            if data_format == "parquet":
                frame.to_parquet(path)
            elif data_format == "csv":
                frame.to_csv(path, index=False)
            else:
                frame.to_json(path, orient="records", lines=True, double_precision=15)
        return str(self.folder / f"part-*.{data_format}")

    def expect(self, frame: pd.DataFrame) -> dict[int, float]:
        """Return the predictions of a plain loop, by row."""
        good = frame.drop(index=self.refused)
        return dict(zip(good.index, self.model.predict(good[["a", "b"]]), strict=True))


def read_output(folder: Path, kind: str, index: int, count: int) -> list[dict[str, Any]]:
    """Return the lines of an output."""
    path = folder / f"prediction.{kind}-{index:05d}-of-{count:05d}"
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_outputs(flights: Flights, out: Path) -> None:
    """Compare all outputs with those of a plain loop."""
    for number, frame in enumerate(flights.frames):
        lines = read_output(out, "results", number, 5)
        expected = flights.expect(frame)
        assert [line["row"] for line in lines] == list(expected)
        found = [line["prediction"] for line in lines]
        np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12, atol=1e-12)
        stats, error = read_output(out, "errors_stats", number, 5)
        assert (stats["rows"], stats["predictions"], stats["errors"]) == (40, 39, 1)
        assert error["row"] == 17
        assert "NaN" in error["error"]
