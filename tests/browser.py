"""Chromium without a window, controlled through its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Seconds within which a page does something on a busy machine.
LIMIT = 120


def find_browser() -> str | None:
    """Return the program; None if it is not installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A browser with one page.

    Attributes
    ----------
    problems : list of str
        Errors of scripts, violations of the policy, dialogs, and lines of the console.
    requests : list of str
        Addresses that pages have requested.
    """

    def __init__(self, folder: Path) -> None:
        command = [
            find_browser(), "--headless", "--disable-gpu", "--no-first-run",
            "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium has no sandbox for root
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._loop = asyncio.new_event_loop()
        self._number = 0
        try:
            self._socket = self._run(self._connect(folder / "DevToolsActivePort"))
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, LIMIT))

    async def _connect(self, file: Path) -> Any:
        while not file.exists() or not file.read_text().strip():
            assert self._process.poll() is None, "the browser has ended"
            await asyncio.sleep(0.05)
        port = file.read_text().split()[0]
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as opened:
                pages = [each for each in json.load(opened) if each["type"] == "page"]
            if pages:
                return await websocket_connect(
                    pages[0]["webSocketDebuggerUrl"], max_message_size=1 << 26
                )
            await asyncio.sleep(0.05)

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and note the events until its result."""
        return self._run(self._call(method, parameters))

    async def _call(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.write_message(json.dumps(message))
        while True:
            answer = json.loads(await self._socket.read_message())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        name, given = event.get("method"), event.get("params", {})
        if name == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif name == "Log.entryAdded":
            self.problems.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif name == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(given["exceptionDetails"])[:500])
        elif name == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {given['message']}")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, or of its promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, address: str) -> None:
        """Open an address, and wait until the page is complete."""
        self.evaluate("window.isOld = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.isOld && document.readyState === 'complete'")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + LIMIT
        while True:
            # A page that is being replaced has no value yet.
            result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            if result["result"].get("value") is True:
                return
            assert time.monotonic() < deadline, (expression, self.problems, result)
            time.sleep(0.05)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **typed,
            )  # fmt: skip

    def click(self, selector: str) -> None:
        """Click an element with the mouse; some widgets ignore its method ``click``."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"!!{element} && {element}.getBoundingClientRect().width > 0")
        self.evaluate(f"{element}.scrollIntoView({{block: 'center'}})")
        box = self.evaluate(f"{element}.getBoundingClientRect().toJSON()")
        where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.close()
