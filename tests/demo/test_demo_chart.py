"""The chart is an image with the right labels and values."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from hyperplane.demo import chart, job
from hyperplane.errors import MissingPackage


def test_labels_describe_the_chart(some: pd.DataFrame) -> None:
    results = job.results_in_pandas(some)
    (axes,) = chart.draw(results).axes
    labels = [text.get_text() for text in axes.texts]
    departed = int(some["dep_time"].notna().sum())
    assert axes.get_title(loc="left") == "Share of flights that departed more than 15 minutes late"
    assert any(f"n = {departed:,} departures from EWR, JFK, LGA" in text for text in labels)
    assert "scheduled hour" in axes.get_xlabel()
    assert "%" in axes.get_ylabel()
    with_departures = results.hours[results.hours["departures"] > 0]
    assert len(axes.patches) == len(with_departures)
    share = 100 * with_departures["late"] / with_departures["departures"]
    assert [bar.get_height() for bar in axes.patches] == share.tolist()


def test_a_chart_without_late_departures_can_be_drawn(some: pd.DataFrame) -> None:
    (axes,) = chart.draw(job.results_in_pandas(some.assign(dep_delay=0.0))).axes
    assert axes.get_ylim() == (0, 1)


def test_saved_file_is_an_image(some: pd.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "late.part"
    chart.save(job.results_in_pandas(some), file)
    with Image.open(file) as image:
        image.load()
        assert image.format == "PNG"
        assert image.width >= 1200
        assert image.height >= 700
        assert len(set(image.convert("RGB").resize((200, 120)).get_flattened_data())) > 50


def test_without_matplotlib_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'hyperplane\[demo\]'"):
        chart.require_matplotlib()
