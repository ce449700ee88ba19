"""A Jupyter server with dask-labextension in a separate process, its requests and its kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import yaml
from services import need, until
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

ROOT = Path(__file__).resolve().parents[2]
#: Seconds for a start or an answer on a busy machine.
LIMIT = 120
#: A small cluster, as factory.kwargs.
SMALL = {"num_workers": 1, "nprocs": 2, "nthreads": 1, "ram_gb_per_proc": 0.5}


def need_labextension() -> None:
    """Skip the test without the extra ``lab``; fail if it has to be there."""
    there = all(map(importlib.util.find_spec, ("dask_labextension", "jupyterlab")))
    need("dask-labextension is not installed", there)


class Answer(Exception):
    """An answer other than success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.message = json.loads(text or "{}").get("message", "")


class LabServer:
    """A server whose pane starts clusters with hyperplane.

    Parameters
    ----------
    folder : Path
        Empty folder for its configuration and its files.
    kwargs : dict
        ``labextension.factory.kwargs``.
    *options
        Further options of JupyterLab.
    """

    def __init__(self, folder: Path, kwargs: dict[str, Any], *options: str) -> None:
        self.log = folder / "log"
        self.files = folder / "files"
        for name in ("dask", "files", "jupyter", "run", "state", "settings"):
            (folder / name).mkdir(parents=True)
        settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        # It would ask in a window over the page, and request pages of other servers.
        no_news = {"fetchNews": "false", "checkForUpdates": False}
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(no_news))
        factory = {"module": "hyperplane.lab", "class": "start_cluster", "kwargs": kwargs}
        setting = yaml.safe_dump({"labextension": {"factory": factory}})
        (folder / "dask" / "labextension.yaml").write_text(setting)
        # The file of the package that enables the extension, which an installation copies.
        paths = [str(ROOT / "config"), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
        # That of the extension: it may be a package of another environment, as in `make ray`.
        package = importlib.util.find_spec("dask_labextension")
        assert package
        assert package.origin
        paths.append(str(Path(package.origin).parents[4] / "etc" / "jupyter"))
        environ = {
            **os.environ,
            "DASK_CONFIG": str(folder / "dask"),
            "JUPYTER_CONFIG_DIR": str(folder / "jupyter"),
            "JUPYTER_CONFIG_PATH": os.pathsep.join(paths),
            "JUPYTER_RUNTIME_DIR": str(folder / "run"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "PYTHONPATH": str(ROOT),
            "XDG_DATA_HOME": str(folder / "state"),
        }
        usual = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *usual, *options],
                cwd=self.files, env=environ, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            until(lambda: self._has_started(folder / "run"), LIMIT)
        except BaseException:
            self.end()
            raise
        [file] = (folder / "run").glob("jpserver-*.json")
        running = json.loads(file.read_text())
        self.token = running["token"]
        self.address = f"http://127.0.0.1:{running['port']}/"

    def _has_started(self, folder: Path) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return bool(list(folder.glob("jpserver-*.json"))) and "is running at" in (
            self.log.read_text(errors="replace")
        )

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the server answers, read from its JSON; raise an Answer for an error."""
        request = urllib.request.Request(
            self.address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as opened:
                content = opened.read()
        except urllib.error.HTTPError as error:
            raise Answer(error.code, error.read().decode()) from None
        return json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Return the clusters of the pane by name."""
        return {each["name"]: each for each in self.request("GET", "dask/clusters")}

    def end(self) -> int:
        """End the server as a terminal that is closed does; return its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Kernel:
    """A kernel of a server, or of a notebook on it; code is executed as a notebook does it."""

    def __init__(self, server: LabServer, notebook: str = "") -> None:
        self._server = server
        kernel: dict[str, Any] = {"name": "python3"}
        if notebook:
            session = {"path": notebook, "name": notebook, "type": "notebook", "kernel": kernel}
            self.id = server.request("POST", "api/sessions", session)["kernel"]["id"]
        else:
            self.id = server.request("POST", "api/kernels", kernel)["id"]

    def run(self, code: str, seconds: float = LIMIT) -> str:
        """Execute code; return what it has printed, or fail with its error."""
        return IOLoop(make_current=False).run_sync(lambda: self._run(code), seconds)

    async def _run(self, code: str) -> str:
        address = self._server.address.replace("http", "ws", 1)
        url = f"{address}api/kernels/{self.id}/channels?token={self._server.token}"
        socket = await websocket_connect(url)
        number = uuid.uuid4().hex
        header = {"msg_id": number, "msg_type": "execute_request", "session": number,
                  "username": "", "version": "5.3"}  # fmt: skip
        content = {"code": code, "silent": False, "stop_on_error": True}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content,
                   "channel": "shell"}  # fmt: skip
        await socket.write_message(json.dumps(message))
        printed, states = [], set()
        while states != {"reply", "idle"}:
            answer = json.loads(await socket.read_message())
            if answer["parent_header"].get("msg_id") != number:
                continue
            if answer["msg_type"] == "stream":
                printed.append(answer["content"]["text"])
            elif answer["msg_type"] == "execute_reply":
                assert answer["content"]["status"] == "ok", answer["content"]
                states.add("reply")
            elif answer["msg_type"] == "status":
                states |= {answer["content"]["execution_state"]} & {"idle"}
        socket.close()
        return "".join(printed)
