"""Objects that one process of this machine builds, and others map."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from typing import IO, Any

import pytest

from hyperplane.platforms.local import shared_objects
from hyperplane.platforms.local.shared_objects import build_or_map

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others build each object")


class Text:
    """An object with a weak reference, and where it comes from."""

    def __init__(self, value: str, source: str = "built") -> None:
        self.value, self.source = value, source


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def get_text(name: str, value: str = "value", **changes: Any) -> Text:
    functions = {"build": lambda: Text(value), "dump": _dump, "load": _load, **changes}
    return build_or_map(name, **functions)


def _dump(text: Text, file: IO[bytes]) -> None:
    file.write(text.value.encode())


def _load(content: memoryview) -> Text:
    assert content.readonly
    return Text(bytes(content).decode(), "mapped")


def test_others_map_the_object_while_it_is_referenced(name):
    first = get_text(name, "one")
    others = [get_text(name, "two") for _ in range(3)]
    assert (first.value, first.source) == ("one", "built")
    assert [(text.value, text.source) for text in others] == [("one", "mapped")] * 3
    assert get_text(uuid.uuid4().hex, "other").source == "built"
    del first
    gc.collect()
    assert get_text(name, "three").value == "three"
    assert others[0].value == "one"


def test_others_wait_for_a_process_that_builds(name):
    begun, may_end = threading.Event(), threading.Event()

    def build_slowly():
        begun.set()
        assert may_end.wait(60)
        return Text("slow")

    texts: list[Text] = []
    builder = threading.Thread(target=lambda: texts.append(get_text(name, build=build_slowly)))
    builder.start()
    assert begun.wait(60)
    other = threading.Thread(target=lambda: texts.append(get_text(name, "other")))
    other.start()
    time.sleep(0.05)
    may_end.set()
    builder.join()
    other.join()
    assert sorted((text.value, text.source) for text in texts) == [
        ("slow", "built"),
        ("slow", "mapped"),
    ]


def test_an_object_that_cannot_be_built_is_built_by_the_next(name):
    def fail():
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        get_text(name, build=fail)
    assert get_text(name).source == "built"


def test_an_object_that_cannot_be_copied_is_built_by_each(name):
    first = get_text(name, dump=lambda text, file: file.no_method())
    assert get_text(name, "two").value == "two"
    assert first.value == "value"


def test_processes_do_not_wait_for_each_other_if_there_is_no_copy(name):
    first = get_text(name, dump=lambda text, file: file.no_method())
    barrier = threading.Barrier(3)

    def build():
        barrier.wait(20)  # passes only if all of them build at the same time
        return Text("own")

    texts: list[Text] = []
    threads = [
        threading.Thread(target=lambda: texts.append(get_text(name, build=build))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [text.value for text in texts] == ["own"] * 3
    assert first.value == "value"


def test_without_memory_files_no_process_waits(name, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    first = get_text(name, "one")
    listener = shared_objects._listen(f"\0hyperplane-{os.getuid()}-{name}")
    assert listener is not None
    listener.close()
    assert first.value == "one"


def test_a_copy_that_cannot_be_used_is_not(name):
    first = get_text(name, "one")
    assert get_text(name, "two", load=lambda content: None).value == "two"
    assert first.value == "one"


def test_objects_of_other_users_are_not_mapped(name, monkeypatch):
    first = get_text(name, "one")
    monkeypatch.setattr(shared_objects, "_is_own", lambda connection: False)
    assert get_text(name, "two").value == "two"
    assert first.value == "one"


def test_only_processes_of_this_user_and_container_are_own(monkeypatch):
    ours, other = socket.socketpair()
    with ours, other:
        assert shared_objects._is_own(ours)
        with monkeypatch.context() as changes:
            changes.setattr(os, "getuid", lambda: 12_345)
            assert not shared_objects._is_own(ours)
        with monkeypatch.context() as changes:
            changes.setattr(shared_objects, "_get_mounts", str)
            assert not shared_objects._is_own(ours)


@pytest.mark.process
def test_a_forked_child_does_not_answer_for_a_process_that_has_ended(name):
    command = [sys.executable, "-c", _FORKING_BUILDER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"forked\n"
        process.kill()
        process.wait()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(f"\0hyperplane-{os.getuid()}-{name}")  # the child's socket
            assert not shared_objects._is_own(connection)
        assert get_text(name, "here").value == "here"
        assert process.stdin is not None
        process.stdin.close()  # ends the child


def test_a_process_that_does_not_answer_is_not_waited_for(name, monkeypatch):
    monkeypatch.setattr(shared_objects, "_WAIT_SECONDS", 0.05)
    listener = shared_objects._listen(f"\0hyperplane-{os.getuid()}-{name}")
    assert listener is not None
    with listener:
        assert get_text(name).source == "built"


_BUILDER = """
import sys, time
from hyperplane.platforms.local.shared_objects import build_or_map

class Text:
    pass

def build():
    print("building", flush=True)
    time.sleep(float(sys.argv[2]))
    return Text()

text = build_or_map(sys.argv[1], build, lambda text, file: file.write(b"from there"), None)
print("built", flush=True)
sys.stdin.read()
"""


_FORKING_BUILDER = """
import os, sys
from hyperplane.platforms.local.shared_objects import build_or_map

class Text:
    pass

text = build_or_map(sys.argv[1], Text, lambda text, file: file.write(b"from there"), None)
if not os.fork():
    print("forked", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.parametrize("is_killed", [False, True])
def test_objects_of_another_process_end_with_it(name, is_killed):
    command = [sys.executable, "-c", _BUILDER, name, "600" if is_killed else "0"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        if is_killed:
            ends = threading.Timer(0.1, process.kill)
            ends.start()
            assert get_text(name, "here").value == "here"
            ends.join()
        else:
            assert process.stdout.readline() == "built\n"
            text = get_text(name, "here")
            process.kill()
            process.wait()
            assert text.value == "from there"
            assert get_text(name, "here").value == "here"
