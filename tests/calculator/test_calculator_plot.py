"""Plot of the memory needed and the memory of each pool."""

import importlib
import sys

import pytest

import hyperplane
from hyperplane.calculator.plot import CHOSEN, OTHER
from hyperplane.errors import MissingPackage

matplotlib = importlib.import_module("matplotlib")
matplotlib.use("agg")
from matplotlib import colors, pyplot  # noqa: E402 - the backend comes first


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture
def advice():
    return hyperplane.size_cluster("100GB", "groupby", "heavy")


def _bars(axes):
    names = [label.get_text() for label in axes.get_yticklabels()]
    return dict(zip(names, axes.patches, strict=True))


def test_each_pool_has_a_bar_as_long_as_its_memory(advice):
    bars = _bars(advice.plot())
    options = {o.pool.name: o for o in [advice.found.option, *advice.alternatives]}
    assert list(bars) == list(hyperplane.pools())
    for name, bar in bars.items():
        assert bar.get_width() == pytest.approx(options[name].total_ram / 1e9)


def test_the_recommended_pool_has_another_color(advice):
    for name, bar in _bars(advice.plot()).items():
        wanted = CHOSEN if name == advice.pool.name else OTHER
        assert colors.to_hex(bar.get_facecolor()) == wanted


def test_bars_and_the_needed_memory_are_labeled(advice):
    axes = advice.plot()
    texts = [text.get_text() for text in axes.texts]
    options = {o.pool.name: o for o in [advice.found.option, *advice.alternatives]}
    for pool in hyperplane.pools():
        nodes = options[pool].nodes
        assert f"{nodes} node{'' if nodes == 1 else 's'}" in texts
    assert "30 nodes" in texts
    assert "needed: 800 GB" in texts
    assert axes.get_xlabel() == "memory given (GB)"


def test_the_line_is_at_the_needed_memory_and_within_the_axes(advice):
    axes = advice.plot()
    [line] = axes.lines
    assert list(line.get_xdata()) == [800, 800]
    left, right = axes.get_xlim()
    assert left == 0
    assert right > max(800, *(bar.get_width() for bar in axes.patches))
    axes.figure.canvas.draw()


def test_draws_on_given_axes(advice):
    _, (first, second) = pyplot.subplots(1, 2)
    assert advice.plot(ax=second) is second
    assert len(second.patches) == len(hyperplane.pools())
    assert len(first.patches) == 0
    assert len(pyplot.get_fignums()) == 1


def test_without_axes_a_figure_is_created(advice):
    assert advice.plot().figure is not advice.plot().figure


def test_a_pool_of_the_caller_is_drawn_too():
    own = hyperplane.PoolSpec(
        name="own", cores=10, ram_gb=20, allocatable_cores=9, allocatable_ram_gb=15
    )
    bars = _bars(hyperplane.size_cluster("1GB", pool=own).plot())
    assert set(bars) == {*hyperplane.pools(), "own"}


def test_without_matplotlib_the_extra_is_named(advice, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingPackage, match=r"pip install 'hyperplane\[plot\]'") as caught:
        advice.plot()
    assert (caught.value.package, caught.value.extra) == ("matplotlib", "plot")
