"""Options of sbatch, indices of arrays, and scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.platforms.slurm.arrays import array_id, is_task, task_id
from hyperplane.platforms.slurm.directives import (
    BatchResources,
    format_options,
    format_time,
    to_mebibytes,
)
from hyperplane.platforms.slurm.script import quote_word, render_array, render_script

#: Texts that need quoting in a shell or in a Slurm script.
HOSTILE = (
    "$(touch canary)", "`touch canary`", "; touch canary #", "it's", 'say "no"', "a\nb", "a\r\nb\n",
    "x\n#SBATCH --wrap=touch\n#PBS -l x", "\\", "\\n", "$HOME", "*", "~", "{a,b}", "[0]=x", "!!",
    "größer 数 🚀", " ", "\t", "", "\x07\x1b[31m\x7f", "\u2028\x85\ufeff", "|", "> ",
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (1, 1), (2**20, 1), (2**20 + 1, 2), (10**9, 954)]
)
def test_memory_is_rounded_up_to_units_of_slurm(size: int, expected: int) -> None:
    assert to_mebibytes(size) == expected
    assert BatchResources(memory=size).options() == {"mem": f"{expected}M"}


def test_only_what_is_requested_is_an_option() -> None:
    assert BatchResources().options() == {}
    whole = BatchResources(cores=5.5, memory=2**30, gpus=2, time_limit=3661).options()
    assert format_options(whole) == [
        *("--cpus-per-task=6", "--mem=1024M", "--time=1:01:01", "--gres=gpu:2"),
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(60, "0:01:00"), (5400, "1:30:00"), (129_600, "36:00:00")]
)
def test_time_limits(seconds: int, expected: str) -> None:
    assert format_time(seconds) == expected


def test_ids_of_tasks() -> None:
    assert task_id("42", "7") == "42_7"
    assert (is_task("42_7"), is_task("42")) == (True, False)
    assert (array_id("42_7"), array_id("42")) == ("42", "42")


@pytest.mark.process
@settings(max_examples=scaled(10, 25))
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_text_is_one_word_on_one_line(texts: list[str]) -> None:
    texts += HOSTILE
    words = [quote_word(text) for text in texts]
    assert not any({"\n", "\r"} & set(word) for word in words)
    line = " ".join(["printf", "'%s\\0'", *words])
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert said.decode().split("\0")[:-1] == texts


@pytest.mark.process
def test_the_items_of_an_array_of_bash_are_its_words() -> None:
    array = render_array("items", map(quote_word, HOSTILE))
    script = f"{array}\nprintf '%s\\0' \"${{items[@]}}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == HOSTILE


@pytest.mark.process
def test_a_script_becomes_the_program_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "it's $(touch canary)\nhere"
    folder.mkdir()
    program = ["printf", "%s\\0", *HOSTILE]
    script = render_script(program, str(folder))
    # Slurm reads lines before bash does, and refuses DOS line ends.
    assert script.count("\n") == 3
    assert "\r" not in script
    done = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True)
    assert tuple(done.stdout.decode().split("\0")[:-1]) == HOSTILE
    missing = render_script(["touch", str(tmp_path / "ran")], str(tmp_path / "gone"))
    done = subprocess.run(["bash"], input=missing.encode(), capture_output=True, check=False)
    assert done.returncode == 126
    assert not (tmp_path / "ran").exists()
