"""Archives of local modules: what they hold, their digest, and their limit."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hyperplane.errors import RequestError
from hyperplane.guard import module_archive
from hyperplane.guard.module_archive import ModuleArchive, pack_modules
from hyperplane.guard.preflight.program_modules import LocalModule


@pytest.fixture
def package(tmp_path: Path) -> LocalModule:
    """A package with data, and with files that must stay here."""
    folder = tmp_path / "tools"
    files = [
        *("__init__.py", "build/__init__.py", "build/wheel.py", "credentials.py", "sub/deep.py"),
        *("table.csv", "tokenizer.json"),
    ]
    private = [
        *(".git/config", ".env", ".netrc", "__pycache__/a.pyc", "server.pem", "id_rsa"),
        *("my-credentials.json", "secrets.yaml", "node_modules/x.js", "sub/.ssh/id"),
        *("prod.env", "credentials", "aws_credentials.csv", "kubeconfig", "passwords.txt"),
        *("token", "hf_token.txt", "secrets.ini", "robot-key.json", "secrets/db.txt"),
        *("dist/wheel.py", "sub/build/old.py"),
    ]
    for name in [*files, *private]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    (tmp_path / "outside.py").write_text("secret = 1\n")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    return LocalModule("tools", folder)


def _names(archive: ModuleArchive) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive.data)) as opened:
        return sorted(opened.namelist())


def test_secrets_caches_and_links_are_not_shipped(package: LocalModule) -> None:
    expected = [
        *("__init__.py", "build/__init__.py", "build/wheel.py", "credentials.py", "sub/deep.py"),
        *("table.csv", "tokenizer.json"),
    ]
    assert _names(pack_modules([package])) == [f"tools/{name}" for name in expected]


def test_the_digest_is_that_of_the_content(package: LocalModule) -> None:
    first = pack_modules([package])
    os.utime(package.path / "table.csv", (1, 1))
    again = pack_modules([package])
    assert (again.digest, again.data) == (first.digest, first.data)
    (package.path / "table.csv").write_text("other")
    assert pack_modules([package]).digest != first.digest


def test_a_module_of_one_file_is_shipped_without_its_folder(tmp_path: Path) -> None:
    (tmp_path / "other.py").touch()
    (tmp_path / "mine.py").write_text("a = 1\n")
    archive = pack_modules([LocalModule("mine", tmp_path / "mine.py")])
    assert (archive.names, _names(archive)) == (("mine",), ["mine.py"])


def test_modules_that_are_too_large_are_refused(
    package: LocalModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_archive, "LARGEST_BYTES", 10)
    with pytest.raises(RequestError) as caught:
        pack_modules([package])
    [fault] = caught.value.faults
    assert fault.where == "sync"
    assert "at most 10 B and 10000 files together; tools has" in fault.allowed
    assert "install tools on the workers" in fault.advice


@pytest.mark.parametrize(("name", "limit"), [("LARGEST_BYTES", 99), ("MOST_FILES", 9)])
def test_the_walk_through_a_large_folder_ends_at_the_limit(
    name: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.txt").write_bytes(bytes(10))
    walked: list[str] = []
    walk = module_archive._walk

    def count(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
        for found in walk(folder, name):
            walked.append(found[0])
            yield found

    monkeypatch.setattr(module_archive, name, limit)
    monkeypatch.setattr(module_archive, "_walk", count)
    with pytest.raises(RequestError, match="tools has 100 B in 10 files, or more"):
        pack_modules([LocalModule("tools", tmp_path)])
    assert len(walked) == 10
    finding = module_archive.check_shipment([LocalModule("tools", tmp_path)])
    assert finding.state == "fault"
    assert "tools has 100 B in 10 files, or more; install tools on the workers" in str(finding)
    monkeypatch.setattr(module_archive, name, 10**6)
    assert module_archive.check_shipment([LocalModule("tools", tmp_path)]).state == "ok"
