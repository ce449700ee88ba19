"""Picture of the memory over a simulated run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from hyperplane.forecasts.memory_picture import MOST, draw_memory
from hyperplane.forecasts.memory_plot import plot_memory
from hyperplane.forecasts.memory_series import MemorySeries

GB = 10**9
NAME = "{http://www.w3.org/2000/svg}"
SERIES = MemorySeries(8.0, ((0.2 * GB, 1.2 * GB, 0.5 * GB, 0.2 * GB), (0.2 * GB,) * 4))


def read_bands(svg):
    """Return the points of the area, and the heights of the lines, of each band."""
    bands = []
    for group in ET.fromstring(svg).iter(f"{NAME}g"):
        area, *others = group.findall(f"{NAME}path")
        base, *values = re.findall(r"(?:M\S+ |V)([\d.]+)", area.get("d"))
        heights = [float(base) - float(value) for value in values[:-1]]
        lines = {
            each.get("class"): float(base) - float(each.get("d").split()[1].split("H")[0])
            for each in others
            if each.get("class")
        }
        bands.append((heights, lines))
    return bands


def test_the_bands_have_the_memory_of_the_series():
    bands = read_bands(draw_memory(SERIES, 2 * GB, 1.4 * GB, "2 worker processes x 1 thread"))
    for (heights, lines), values in zip(bands, SERIES.processes, strict=True):
        scale = lines["hp-limit"] / (2 * GB)
        assert [height / scale for height in heights] == pytest.approx(values, rel=0.02)
        assert lines["hp-spill"] / scale == pytest.approx(1.4 * GB, rel=0.02)


def test_the_texts_name_the_figures():
    picture = ET.fromstring(draw_memory(SERIES, 2 * GB, 1.4 * GB, "2 <processes> & more"))
    assert picture.find(f"{NAME}title").text.endswith("in 2 <processes> & more")
    texts = [each.text for each in picture.iter(f"{NAME}text")]
    assert {"memory limit: 2 GB", "results are written to disk: 1.4 GB", "process 1", "1.2 GB",
            "process 2", "200 MB", "0", "2", "4", "6", "8"} <= set(texts)  # fmt: skip
    titles = [each.find(f"{NAME}title").text for each in picture.iter(f"{NAME}g")]
    assert titles == ["process 1: up to 1.2 GB", "process 2: up to 200 MB"]
    style = picture.find(f"{NAME}style").text
    assert "prefers-color-scheme:dark" in style


def test_a_limit_far_above_the_memory_is_a_text_and_no_line():
    svg = draw_memory(SERIES, 20 * GB, 0.0, "2 worker processes x 1 thread")
    assert all(not lines for _, lines in read_bands(svg))
    assert "memory limit: 20 GB (above the bands)" in svg
    assert "written to disk" not in svg


def test_of_many_processes_the_largest_are_shown():
    series = MemorySeries(1.0, tuple((float(number),) * 3 for number in range(1, 41)))
    picture = draw_memory(series, 0.0, 0.0, "40 worker processes x 1 thread")
    assert len(read_bands(picture)) == MOST
    assert f"the {MOST} largest of 40 processes" in picture
    assert "process 40" in picture
    assert "process 32:" not in picture


def test_the_plot_has_the_same_values():
    axes = plot_memory(SERIES, 2 * GB, 1.4 * GB)
    values = [list(patch.get_data().values) for patch in axes.patches]
    assert values == [pytest.approx([0.2, 1.2, 0.5, 0.2]), pytest.approx([0.2] * 4)]
    assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([2.0, 1.4])
