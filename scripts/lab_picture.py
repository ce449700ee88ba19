"""Take the picture of JupyterLab with the pane for clusters: ``python -m scripts.lab_picture``.

It needs Chromium and the extra ``lab``, and writes ``docs/_static/lab-pane-light.png``.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from nbformat import v4, write
from PIL import Image

from scripts.html_pictures import SCREENSHOTS, STATIC, save_picture

# The helpers of the tests of the pane.
sys.path += [str(STATIC.parents[1] / "tests" / name) for name in ("", "clusters", "lab")]

from browser import Browser
from lab_server import SMALL, Kernel, LabServer

_WIDTH, _HEIGHT = 1400, 760
#: Seconds for the plots, which are drawn several times.
_DRAW_SECONDS = 5
_CELLS = (
    """\
import hyperplane
client, cluster = hyperplane.initialize_cluster(
    num_workers=1, nprocs=2, nthreads=1,
    ram_gb_per_proc=1, name="flights",
)""",
    """\
import time
from dask import delayed

@delayed
def load(month):
    time.sleep(0.2 + month % 3 / 10)

@delayed
def count_delays(month, flights):
    time.sleep(0.1 + month % 4 / 10)

months = [count_delays(month, load(month)) for month in range(60)]
done = client.gather(client.compute(months))""",
)


def main() -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        folder = Path(name)
        for each in ("home", "tmp"):
            (folder / each).mkdir()
        # The clusters of the user are not in the picture.
        os.environ |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
        tempfile.tempdir = str(folder / "tmp")
        server = LabServer(folder / "lab", SMALL, "--LabApp.expose_app_in_browser=True")
        try:
            picture = _take(server, folder / "profile")
        finally:
            server.end()
    save_picture(picture, STATIC / f"{SCREENSHOTS[0]}-light.png")


def _take(server: LabServer, profile: Path) -> Image.Image:
    """Return a picture of a notebook and the clusters of the pane."""
    kernel = Kernel(server, "flights.ipynb")
    kernel.run(_CELLS[0])
    cells = [v4.new_code_cell(source) for source in _CELLS]
    write(v4.new_notebook(cells=cells), server.files / "flights.ipynb")
    server.request("PUT", "dask/clusters")
    browser = Browser(profile)
    try:
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=_WIDTH, height=_HEIGHT, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        browser.open(f"{server.address}lab/tree/flights.ipynb?token={server.token}")
        browser.wait("document.querySelectorAll('.jp-CodeCell').length === 2")
        browser.click("[data-id='dask-dashboard-launcher']")
        browser.wait("document.querySelectorAll('.dask-ClusterListingItem').length === 2")
        browser.evaluate(
            "[...document.querySelectorAll('.dask-ClusterListingItem')].find(each => "
            "each.innerText.startsWith('flights')).id = 'one'"
        )
        browser.click("#one .dask-ClusterListingItem-title")
        browser.wait("!!document.querySelector('.dask-DashboardListing-item button')")
        browser.evaluate("jupyterapp.commands.execute('dask:launch-layout').then(() => null)")
        browser.wait("document.querySelectorAll('iframe').length === 3")
        kernel.run(_CELLS[1])  # now, because plots show what happens while they are open
        time.sleep(_DRAW_SECONDS)
        browser.evaluate("document.getElementById('one').parentElement.scrollIntoView(false)")
        shot = browser.call("Page.captureScreenshot", format="png")["data"]
    finally:
        browser.close()
    return Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")


if __name__ == "__main__":
    main()
