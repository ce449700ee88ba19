"""Large local files are never held in memory, and are saved whole or not at all."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import fsspec
import pytest
from rich.progress import Progress
from scale import scaled

import hyperplane
from hyperplane.core import progress
from hyperplane.errors import OutputExists, StorageError
from hyperplane.objectstore import multipart_upload
from hyperplane.storage import local_files

MIB = 2**20


@pytest.fixture
def large(tmp_path):
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(MIB) * 9 + b"end")
    return source


@pytest.mark.slow
@pytest.mark.process
def test_memory_does_not_grow_with_the_file(tmp_path):
    size = scaled(150, 300) * MIB
    with (tmp_path / "large.bin").open("wb") as opened:
        opened.truncate(size)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "large.bin").hardlink_to(tmp_path / "large.bin")
    script = (
        "import pathlib, resource, sys, hyperplane\n"
        "base = pathlib.Path(sys.argv[1])\n"
        "(base / 'small').write_text('')\n"
        "hyperplane.save(base / 'small', base / 'warm')\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "for source, to in (('large.bin', 'a.bin'), ('folder', 'b')):\n"
        "    assert hyperplane.save(base / source, base / to).changed\n"
        "    assert not hyperplane.save(base / source, base / to).changed\n"
        "print((peak() - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100
    assert (tmp_path / "a.bin").stat().st_size == size


def test_a_large_file_is_saved_and_replaced_on_disk(tmp_path, large):
    out = tmp_path / "out" / "a.bin"
    result = hyperplane.save(large, out)
    assert (result.nbytes, result.written, out.read_bytes()) == (9 * MIB + 3, 1, large.read_bytes())
    assert not hyperplane.save(large, out).changed
    with large.open("r+b") as opened:
        opened.seek(5 * MIB)
        opened.write(b"other")
    with pytest.raises(OutputExists):
        hyperplane.save(large, out)
    assert not hyperplane.save(large, out, mode="skip").changed
    assert hyperplane.save(large, out, mode="overwrite").changed
    assert out.read_bytes() == large.read_bytes()
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_large_file_is_saved_and_replaced_on_an_object_store(request, large, kind):
    bucket = request.getfixturevalue(kind)
    url, options = f"{bucket.url}/ü/a.json", bucket.options
    assert hyperplane.save(large, url, storage_options=options).written == 1
    assert not hyperplane.save(large, url, storage_options=options).changed
    system, path = fsspec.url_to_fs(url, **options)
    assert system.cat_file(path) == large.read_bytes()
    info = system.info(path)
    assert (info.get("contentType") or info["ContentType"]) == "application/json"
    large.write_bytes(large.read_bytes()[::-1])
    with pytest.raises(OutputExists):
        hyperplane.save(large, url, storage_options=options)
    assert hyperplane.save(large, url, mode="overwrite", storage_options=options).changed
    assert system.cat_file(path) == large.read_bytes()
    assert hyperplane.save(large.parent, f"{bucket.url}/folder", storage_options=options).files == 1


def test_the_second_writer_of_a_large_file_gets_an_error(tmp_path, large, monkeypatch):
    out = tmp_path / "a.bin"
    monkeypatch.setattr("hyperplane.objectstore.store_files.StoreFiles.is_file", lambda *_: False)
    out.write_text("theirs")
    with pytest.raises(OutputExists):
        hyperplane.save(large, out)
    assert out.read_text() == "theirs"
    out.write_bytes(large.read_bytes())  # as after a lost answer
    assert hyperplane.save(large, out).written == 1


def test_an_interrupted_copy_keeps_the_previous_file(tmp_path, large, monkeypatch):
    out = tmp_path / "out" / "a.bin"
    hyperplane.save(b"old", out)

    def half(source, draft):
        draft.write_bytes(source.read_bytes()[: 5 * MIB])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(multipart_upload.shutil, "copyfile", half)
    with pytest.raises(StorageError, match="no space left"):
        hyperplane.save(large, out, mode="overwrite")
    assert out.read_bytes() == b"old"
    assert list(out.parent.iterdir()) == [out]


def test_a_file_that_grows_during_the_save_is_an_error(tmp_path, large, monkeypatch):
    real = multipart_upload.shutil.copyfile

    def grow(source, draft):
        with source.open("ab") as opened:
            opened.write(b"more")
        return real(source, draft)

    monkeypatch.setattr(multipart_upload.shutil, "copyfile", grow)
    with pytest.raises(StorageError, match="while no process changes it"):
        hyperplane.save(large, tmp_path / "out.bin")


def test_a_folder_advances_a_bar_with_each_file(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    for number in range(5):
        (tmp_path / "mine" / f"{number}.txt").write_text("a")
    monkeypatch.setenv("COLUMNS", "300")
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "BAR_DELAY", 0.0)
    bars = []
    real = local_files.show_progress

    @contextmanager
    def watched(what, total):
        bars.append((what, total))
        with real(what, total) as advance:
            while not shown.getvalue():  # the bar starts in another thread
                time.sleep(0.01)
            yield advance

    monkeypatch.setattr(local_files, "show_progress", watched)
    hyperplane.save(tmp_path / "mine", tmp_path / "out")
    assert bars == [(f"saving {tmp_path / 'out'}", 5)]
    assert "5/5" in shown.getvalue()


def test_a_progress_bar_that_starts_at_the_end_is_stopped(monkeypatch):
    """The timer starts the bar while the block ends; the bar must not remain."""
    shown, begun, left = io.StringIO(), threading.Event(), threading.Event()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "BAR_DELAY", 0.0)
    start = Progress.start

    def late(self):
        begun.set()
        left.wait(250)
        time.sleep(0.2)  # while the block is ending
        start(self)

    monkeypatch.setattr(Progress, "start", late)
    with progress.show_progress("saving", 1) as advance:
        assert begun.wait(250)
        advance()
        left.set()
    assert shown.getvalue().count("\x1b[?25h") == shown.getvalue().count("\x1b[?25l") == 1


def test_an_unreadable_file_is_named_in_the_error(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a")

    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", refuse)
    for source in ("mine", "mine/a.txt"):
        with pytest.raises(StorageError, match=r"a\.txt: permission denied"):
            hyperplane.save(tmp_path / source, tmp_path / "out")


def test_a_transient_error_is_retried(tmp_path, large, monkeypatch):
    real, tries = multipart_upload.shutil.copyfile, []

    def unsteady(source, draft):
        tries.append(draft)
        if len(tries) < 3:
            raise ConnectionResetError(104, "Connection reset by peer")
        return real(source, draft)

    monkeypatch.setattr(multipart_upload.shutil, "copyfile", unsteady)
    assert hyperplane.save(large, tmp_path / "out" / "a.bin").written == 1
    assert len(tries) == 3
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "a.bin"]
