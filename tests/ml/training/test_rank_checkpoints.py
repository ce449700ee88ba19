"""Files of checkpoints: complete, damaged, removed, and on a full disk."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hyperplane.ml.estimators.torch_settings import write_object  # noqa: E402
from hyperplane.ml.training.rank_checkpoints import (  # noqa: E402
    DamagedCheckpoint,
    find_newest,
    load_state,
    save_state,
)

pytestmark = pytest.mark.torch
STATE = {"model": {"weight": torch.arange(1000.0)}, "history": [{"epoch": 1}]}


def change_byte(data):
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data[:1000], "is not complete"),
        (lambda data: b"", "is not complete"),
        (lambda data: bytes(len(data)), "is not complete"),
        (change_byte, "has other bytes than were written"),
    ],
    ids=["half", "empty", "zeros", "changed"],
)
def test_damaged_files_are_recognized(tmp_path, damage, text):
    file = tmp_path / "new" / "state.pt"
    save_state(file, STATE)
    assert torch.equal(load_state(file)["model"]["weight"], STATE["model"]["weight"])
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedCheckpoint, match=rf"state\.pt {text}"):
        load_state(file)


def test_a_removed_file_is_damaged_and_refused_objects_are_not(tmp_path):
    with pytest.raises(DamagedCheckpoint, match="has been removed"):
        load_state(tmp_path / "state.pt")
    save_state(tmp_path / "state.pt", {"path": Path("x")})
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load_state(tmp_path / "state.pt")


def test_the_newest_file_that_is_not_damaged_is_found(tmp_path, capsys):
    assert find_newest(tmp_path, "step") == -1
    assert find_newest(tmp_path / "absent", "step") == -1
    for number in (4, 8, 12):
        save_state(tmp_path / f"step.{number}.pt", STATE)
    (tmp_path / "step.best.pt").touch()
    assert find_newest(tmp_path, "step") == 12
    for number in (8, 12):
        (tmp_path / f"step.{number}.pt").write_bytes(b"PK")
    assert find_newest(tmp_path, "step") == 4
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(" is not complete; the one before")[0] for line in shown] == [
        f"the checkpoint {tmp_path}/step.{number}.pt" for number in (12, 8)
    ]


def test_the_file_before_is_kept(tmp_path):
    file, previous = tmp_path / "state.pt", tmp_path / "previous.pt"
    for number in range(3):
        save_state(file, {"number": number}, previous)
    assert (load_state(previous), load_state(file)) == ({"number": 1}, {"number": 2})


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("save", [save_state, lambda file, state: write_object(state, file)])
def test_a_full_disk_is_an_error_and_leaves_the_file_before(tmp_path, save):
    file, new = tmp_path / "state.pt", tmp_path / "state.pt.new"
    save(file, {"number": 1})
    new.symlink_to("/dev/full")
    with pytest.raises(OSError, match="the file cannot be written: No space left") as caught:
        save(file, {"number": 2, **STATE})
    assert caught.value.filename == str(file)
    assert load_state(file) == {"number": 1}
    assert not new.is_symlink()
