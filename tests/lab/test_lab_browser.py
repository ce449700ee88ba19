"""The pane of dask-labextension in JupyterLab and Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser, find_browser
from lab_server import Kernel, LabServer
from services import need

from hyperplane.clusters import records

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

ITEMS = "[...document.querySelectorAll('.dask-ClusterListingItem')]"
START = """
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", name="flights"
)
"""
#: Whether the plot of a frame has data, which comes through the websocket of the dashboard.
HAS_DATA = """
[...document.querySelectorAll('iframe')].some(frame =>
    frame.contentWindow.Bokeh && frame.contentWindow.Bokeh.documents.length === 1 &&
    [...frame.contentWindow.Bokeh.documents[0]._all_models.values()].some(model =>
        model.type === 'ColumnDataSource' && model.get_length() > 0))
"""
#: React notices a new value of a field only through the setter of its class.
ENTER = """
(() => {
    const field = document.querySelectorAll('.dask-ScalingInput')[0];
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, '2');
    field.dispatchEvent(new Event('input', {bubbles: true}));
})()
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    need("Chromium is not installed", find_browser() is not None)
    started = Browser(tmp_path / "profile")
    yield started
    started.close()


def open_pane(browser: Browser, server: LabServer) -> None:
    browser.open(f"{server.address}lab?token={server.token}")
    browser.wait("!!document.querySelector('.jp-LauncherCard')")  # the layout is restored
    browser.click("[data-id='dask-dashboard-launcher']")
    browser.wait("!!document.querySelector('.dask-DaskClusterManager') && "
                 "document.querySelector('.dask-DaskClusterManager').clientWidth > 0")  # fmt: skip


def has_item(name: str, text: str = "") -> str:
    """Return an expression: whether the pane lists a cluster, with a text."""
    return (
        f"{ITEMS}.some(each => each.innerText.startsWith({json.dumps(name)}) && "
        f"each.innerText.includes({json.dumps(text)}))"
    )


def test_clusters_of_the_pane_and_of_a_kernel_are_listed_scaled_watched_and_stopped(
    browser: Browser, server: LabServer
) -> None:
    kernel = Kernel(server)
    kernel.run(START)
    open_pane(browser, server)
    browser.wait(has_item("flights", "Number of Workers: 1"))
    browser.click("[data-command='dask:launch-cluster']")
    browser.wait(has_item("HyperplaneCluster 2", "Number of Workers: 2"))
    assert len(records.read_all()) == 2

    browser.click("[title='Rescale flights']")
    browser.wait("!!document.querySelector('.dask-ScalingInput')")
    browser.evaluate(ENTER)
    browser.click(".jp-Dialog .jp-mod-accept")
    browser.wait(has_item("flights", "Number of Workers: 2"))
    assert kernel.run("print(len(cluster.worker_spec))") == "2\n"
    for name in ("flights", "HyperplaneCluster 2"):
        # The plots are those of the selected cluster.
        browser.evaluate(f"{ITEMS}.find(each => each.innerText.startsWith('{name}')).id = 'one'")
        browser.click("#one .dask-ClusterListingItem-title")
        browser.wait("document.getElementById('one').classList.contains('jp-mod-active')")
        browser.click(".dask-DashboardListing-item button[value='Workers Memory']")
        browser.wait(HAS_DATA)
        browser.evaluate("document.getElementById('one').id = ''")
        browser.click(".jp-mod-current .lm-TabBar-tabCloseIcon")
        browser.wait("!document.querySelector('iframe')")

    browser.click("[title='Shutdown flights']")
    browser.wait(f"!{has_item('flights')}")
    assert kernel.run("print(cluster.status.name)") == "closed\n"
    browser.click("[title='Shutdown HyperplaneCluster 2']")
    browser.wait(f"{ITEMS}.length === 0")
    assert records.read_all() == []
    # JupyterLab shows the frames of plots with this warning of the browser.
    assert [each for each in browser.problems if "sandbox attribute" not in each] == []


def test_wrong_arguments_are_shown_when_a_cluster_is_started(
    browser: Browser, start_server: Callable[..., LabServer]
) -> None:
    open_pane(browser, start_server(treads=2))
    browser.click("[data-command='dask:launch-cluster']")
    browser.wait("!!document.querySelector('.jp-Dialog')")
    text = browser.evaluate("document.querySelector('.jp-Dialog').innerText")
    assert "treads=2: unknown argument" in text
    assert "did you mean nthreads?" in text
