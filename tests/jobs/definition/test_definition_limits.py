"""Hostile files are refused quickly, and only with a RequestError."""

from __future__ import annotations

import os
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.errors import RequestError
from hyperplane.jobs.definition import tasks
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.pipeline_file import read_pipeline
from hyperplane.jobs.definition.yaml_tree import MAX_DEPTH, MAX_FILE_BYTES

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "bomb": (BOMB, "the anchor or alias 'a'"),
    "ten megabytes": ("x" * 10_000_000, f"10000000 bytes: expected at most {MAX_FILE_BYTES}"),
    "brackets": ("[" * 5_000, f"more than {MAX_DEPTH} nested lists and mappings"),
    "braces": ("{a: " * 5_000, f"more than {MAX_DEPTH} nested lists and mappings"),
    "dashes": ("- " * 5_000, f"more than {MAX_DEPTH} nested lists and mappings"),
    "indented": (
        "".join(" " * n + "a:\n" for n in range(500)),
        f"more than {MAX_DEPTH} nested lists",
    ),
    "one key": ("pipeline: {" + ", ".join(["k: 1"] * 20_000) + "}", "'k' repeated"),
    "digits": ("pipeline:\n  tasks: [{port: " + "9" * 50_000 + "}]", "a number without"),
    "quotes": ("pipeline:\n" + "  name: “" * 50_000, "expected"),
    "tabs": ("pipeline:\n" + "\t" * 500_000 + "a: b", "expected"),
    "no UTF-8": (b"pipeline:\n  name: \xff", "line 2 = bytes that are not UTF-8"),
    "UTF-16": ("pipeline:".encode("utf-16"), "bytes that are not UTF-8"),
    "zeros": (b"pipeline: \x00", "expected YAML"),
}


def seconds_to_refuse(file: Path, expected: str) -> float:
    """Return the processor time, in seconds, that it takes to refuse a file."""
    begin = time.process_time()
    with pytest.raises(RequestError) as caught:
        read_pipeline(file)
    taken = time.process_time() - begin
    assert expected in str(caught.value)
    return taken


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_soon(tmp_path, name):
    content, expected = HOSTILE[name]
    file = tmp_path / "p.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    # Under half a second on an idle machine; exponential cases take minutes.
    assert seconds_to_refuse(file, expected) < 10


@pytest.mark.parametrize("size", [0, 200_000_000])
def test_a_bomb_and_a_huge_file_take_no_memory(tmp_path, size):
    file = tmp_path / "p.yaml"
    file.write_text(BOMB)
    if size:
        os.truncate(file, size)  # a hole on the disk
    tracemalloc.start()
    try:
        seconds_to_refuse(file, f"{size} bytes" if size else "alias")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_limits_themselves_are_allowed(tmp_path):
    file = tmp_path / "p.yaml"
    text = "pipeline: {name: p, tasks: [{name: a, type: command, command: [a]}]}\n#"
    file.write_text(text.ljust(MAX_FILE_BYTES, "x"))
    assert read_pipeline(file).name == "p"
    file.write_text(text.ljust(MAX_FILE_BYTES + 1, "x"))
    seconds_to_refuse(file, f"{MAX_FILE_BYTES + 1} bytes")
    file.write_text("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    seconds_to_refuse(file, "not a mapping")
    file.write_text("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    seconds_to_refuse(file, "nested lists")


def test_a_tag_that_names_code_runs_nothing(tmp_path):
    canary = tmp_path / "canary"
    file = tmp_path / "p.yaml"
    file.write_text(f"pipeline: !!python/object/apply:os.system ['touch {canary}']\n")
    seconds_to_refuse(file, "the tag")
    assert not canary.exists()


def test_thousands_of_steps_and_unknown_names_are_refused_soon(tmp_path):
    file = tmp_path / "p.yaml"
    lines = [
        f"  - {{name: s{n}, type: command, command: [a], depends_on: [gone{n}]}}"
        for n in range(2_000)
    ]
    file.write_text("\n".join(["pipeline:", "  name: p", "  tasks:", *lines]))
    assert seconds_to_refuse(file, "'gone1999': expected the name of a step") < 10


def outcome(file: Path) -> Pipeline | None:
    """Return the pipeline of a file, None after a RequestError; other errors fail the test."""
    for again in (False, True):
        begin, pipeline = time.process_time(), None
        with suppress(RequestError):
            pipeline = read_pipeline(file, root=file.parent)
        if time.process_time() - begin < 1:
            return pipeline
        # The first reading may include a garbage collection; a slow file is slow twice.
        assert not again, file.read_bytes()
    return None


keys = st.sampled_from(
    [*tasks.TASK_KEYS, "pipeline", "tasks", "requirements", "job_type", "x", "<<"]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["a.sh", "a", "b", "bash", "command", "10m", "../a.sh", "2GB", "", "[", "*x"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(keys | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
task = st.fixed_dictionaries(
    {"name": st.sampled_from("abc"), "type": st.sampled_from(["bash", "command", "py", "x"])},
    optional={key: values for key in tasks.TASK_KEYS if key not in {"name", "type"}},
)
pipelines = st.builds(
    lambda name, steps, more: {"pipeline": {"name": name, "tasks": steps, **more}},
    scalars,
    st.lists(task | values, max_size=4) | values,
    st.dictionaries(keys, values, max_size=2),
)
FUZZ = settings(
    max_examples=scaled(60, 300), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(content=pipelines)
def test_any_structure_is_read_or_refused(tmp_path, content):
    (tmp_path / "a.sh").touch()
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    pipeline = outcome(file)
    if pipeline is not None:
        assert Pipeline.from_json(pipeline.to_json()) == pipeline


@FUZZ
@given(content=st.text(st.sampled_from("ap:\n -[]{}\"'“”\t#&*!|>?,0\ufeffé")) | st.text())
def test_any_text_is_read_or_refused(tmp_path, content):
    file = tmp_path / "p.yaml"
    file.write_bytes(("pipeline:\n" + content).encode())
    outcome(file)


@FUZZ
@given(content=st.binary(max_size=200), suffix=st.sampled_from(["yaml", "ipynb", "sh", "py"]))
def test_any_bytes_are_read_or_refused(tmp_path, content, suffix):
    file = tmp_path / f"p.{suffix}"
    file.write_bytes(content)
    outcome(file)


@FUZZ
@given(cut=st.integers(0, 900), junk=st.text(max_size=5))
def test_a_good_file_that_is_damaged_is_read_or_refused(tmp_path, cut, junk):
    examples = Path(__file__).parent / "examples"
    text = (examples / "good" / "fan_out.yaml").read_text(encoding="utf-8")
    file = tmp_path / "p.yaml"
    file.write_text(text[:cut] + junk + text[cut:], encoding="utf-8")
    outcome(file)
