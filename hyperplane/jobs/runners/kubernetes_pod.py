"""One attempt on Kubernetes: its pod watched, what it writes kept, its end written down."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from hyperplane.engines.kubernetes import look
from hyperplane.errors import EngineError
from hyperplane.jobs.notebook import sent_in
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.kubernetes_attempt import CONTAINER, job_id_of, name_of
from hyperplane.jobs.runners.kubernetes_watch import View, Watch

#: Seconds between looks.
LOOK = 1.0
#: Seconds between words in the log on why a pod does not run yet.
WORDS = 15.0
#: Seconds between requests to delete what has not gone.
AGAIN = 10.0
#: Seconds in which the rest of a log comes when its container has ended.
PATIENCE = 10.0
#: What a kubelet says, as if it were the log, of a container that is removed already.
_NO_LOG = b"unable to retrieve container logs"
#: What a step ends with that can never run: a wrong configuration, by sysexits.h.
WRONG = 78
#: What a program ends with that there is not.
NO_PROGRAM = 127

Object = Mapping[str, Any]


class PodProcess:
    """One attempt as a Job of Kubernetes.

    Parameters
    ----------
    command : Command
        What it runs.
    watch : Watch
        What there is on Kubernetes.
    created : float
        When its Job was created, by the monotonic clock, if this process did it.
    """

    def __init__(self, command: Command, watch: Watch, created: float = float("-inf")) -> None:
        self.command, self._watch, self._created = command, watch, created
        self._name, self._told = name_of(command), time.monotonic()
        self._following: asyncio.Task[bool] | None = None

    def exit_code(self) -> int | None:
        """What was written down of its end."""
        try:
            return int(self.command.file(".exit").read_text())
        except (OSError, ValueError):
            return None

    def gone_at(self) -> float:
        """When its container ended, if that is known."""
        with suppress(OSError):
            return self.command.file(".exit").stat().st_mtime
        return 0.0

    async def begun(self) -> None:
        """Return when its container runs, or it will not."""
        while self.exit_code() is None:
            view = await self._view()
            if view is not None and (await self._ended(view) or self._is_gone(view)):
                return
            if self.command.file(".pid").exists():
                return
            await asyncio.sleep(LOOK)

    async def wait(self) -> int | None:
        """Its exit code, once it has ended and its Job is taken away; None when it left none."""
        try:
            while self.exit_code() is None:
                view = await self._view()
                if view is not None and (await self._ended(view) or self._is_gone(view)):
                    break
                await asyncio.sleep(LOOK)
        finally:
            self._follow_no_more()
        await self._watch.delete(self._name)
        return self.exit_code()

    async def end(self, grace: float) -> int | None:
        """Delete its Job; Kubernetes ends the pod politely, and after its time surely."""
        del grace  # which the pod has known from its beginning
        asked = float("-inf")
        while True:
            if time.monotonic() - asked > AGAIN:
                asked = time.monotonic()
                await self._watch.delete(self._name)
            view = await self._view()
            if view is not None:
                await self._ended(view)
                if self._name not in view.jobs and not self._lives(view):
                    break
            await asyncio.sleep(LOOK)
        if self._following is not None:  # its last words are on their way
            await asyncio.wait({self._following}, timeout=LOOK)
        self._follow_no_more()
        return self.exit_code()

    async def _view(self) -> View | None:
        return await self._watch.view(job_id_of(self.command), self._created)

    def _is_gone(self, view: View) -> bool:
        return self._name not in view.jobs

    def _lives(self, view: View) -> bool:
        return any(not _over(pod) for pod in view.pods.get(self._name, ()))

    async def _ended(self, view: View) -> bool:
        """Write down how it has ended, if it has."""
        pods = view.pods.get(self._name, [])
        pod = self._own(pods)
        if pod is None:
            if self.command.file(".pid").exists() and self._name in view.jobs:
                self._say("Kubernetes ended the pod: it was deleted")
                return True
            self._tell(view, pods)
            return False
        state, name = _state(pod), pod["metadata"]["name"]
        if started := (state.get("running") or state.get("terminated") or {}).get("startedAt"):
            self._begun_at(_seconds(started), name)
        if state.get("running") and self._following is None:
            self._following = asyncio.create_task(self._follow(name))
        ended = state.get("terminated")
        if ended is None and pod["status"].get("phase") != "Failed":
            return self._will_not_run(view, pod)
        await self._keep_log(name)
        self._write_down(pod, ended)
        return True

    def _own(self, pods: Sequence[Object]) -> Object | None:
        """The pod that has begun the attempt; while there is none, the one that will."""
        try:
            name = self.command.file(".pid").read_text()
        except OSError:
            begun = (pod for pod in pods if _state(pod).keys() - {"waiting"})
            return next(begun, pods[-1] if pods else None)
        # Kubernetes may have made another one since: that would be another attempt.
        return next((pod for pod in pods if pod["metadata"]["name"] == name), None)

    def _will_not_run(self, view: View, pod: Object) -> bool:
        if found := look.stuck([pod], view.events):
            self._say(found.text)
            self._write(".exit", str(WRONG))
            return True
        self._tell(view, [pod])
        return False

    def _write_down(self, pod: Object, ended: Object | None) -> None:
        """The exit code; none of one that Kubernetes has ended for reasons of its own."""
        disrupted = any(
            one["type"] == "DisruptionTarget" and one["status"] == "True"
            for one in pod["status"].get("conditions", ())
        )
        if ended is None or disrupted or "deletionTimestamp" in pod["metadata"]:
            reason = pod["status"].get("reason") or "it was deleted"
            said = " ".join(str(pod["status"].get("message", "")).split())
            self._say(f"Kubernetes ended the pod: {reason}{': ' * bool(said)}{said}")
            return
        code = int(ended["exitCode"])
        if ended.get("reason") == "OOMKilled":
            self._say(next(iter(look.out_of_memory([pod]).values()), "it ran out of memory"))
            code = -signal.SIGKILL
        elif code == 128 and ended.get("message"):
            self._say(f"{ended.get('reason')}: {ended['message']}")
            code = NO_PROGRAM
        elif 128 < code <= 128 + signal.NSIG:
            code = 128 - code
        self._write(".exit", str(code))
        with suppress(KeyError, ValueError):
            at = _seconds(ended["finishedAt"])
            os.utime(self.command.file(".exit"), (at, at))

    def _begun_at(self, at: float, pod: str) -> None:
        file = self.command.file(".pid")
        if not file.exists():
            # Words on why it does not run yet make room for its own.
            self._write(".log", b"")
            self._write(".pid", pod)
            os.utime(file, (at, at))

    def _tell(self, view: View, pods: Sequence[Object]) -> None:
        """Why it does not run yet, now and then."""
        if self.command.file(".pid").exists() or time.monotonic() - self._told < WORDS:
            return
        self._told = time.monotonic()
        ours = [
            one
            for one in view.events
            if str(one["involvedObject"].get("name", "")).startswith(self._name)
        ]
        self._write(".log", f"waiting for Kubernetes: {look.summary(pods, ours)}\n")

    async def _follow(self, pod: str) -> bool:
        """Keep what it writes as it comes; whether that was all of it."""
        try:
            with self.command.file(".log").open("wb", buffering=0) as log:
                async for part in self._watch.follow(pod):
                    log.write(part)
        except EngineError:
            return False
        return True

    def _follow_no_more(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def _keep_log(self, pod: str) -> None:
        """All that it has written, if what was followed is less."""
        if self._following is not None:
            done, _ = await asyncio.wait({self._following}, timeout=PATIENCE)
            whole = bool(done) and self._following.result()
            self._follow_no_more()
            if whole:
                self._take_notebook()
                return
        text = await self._watch.log(pod)
        if text is not None and not text.startswith(_NO_LOG):
            self._write(".log", text)
            self._take_notebook()

    def _take_notebook(self) -> None:
        """Take the executed notebook out of the log, and write it where it is looked for."""
        try:
            output = Path(self.command.file(".notebook").read_text())
        except OSError:
            return
        log, found = sent_in(self.command.file(".log").read_bytes())
        if found is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(found)
            self._write(".log", log)

    def _say(self, words: str) -> None:
        with self.command.file(".log").open("a") as log:
            log.write(f"\n{words}\n")

    def _write(self, suffix: str, text: str | bytes) -> None:
        """A file that is there with all of its text or not at all."""
        draft = self.command.file(f"{suffix}.draft")
        draft.write_bytes(text.encode() if isinstance(text, str) else text)
        draft.replace(self.command.file(suffix))


def _state(pod: Object) -> dict[str, Any]:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        if status["name"] == CONTAINER:
            found: dict[str, Any] = status.get("state", {})
            return found
    return {}


def _over(pod: Object) -> bool:
    return "terminated" in _state(pod) or pod["status"].get("phase") in ("Succeeded", "Failed")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
