"""Faults of pipeline files: each with its line, the given value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from hyperplane.errors import RequestError, UnknownArgument, UnknownKey
from hyperplane.jobs.definition.pipeline_file import read_pipeline
from hyperplane.jobs.definition.schema import json_schema

#: A file with a place for a fault in its only task, line 7.
TASK = """\
pipeline:
  name: p
  tasks:
  - name: a
    type: bash script
    bash_script_path: a.sh
    {}
"""

#: A pool that earlier runs or a forecast choose, before another key.
AUTO = "resources: {pool: auto}\n    "

#: Text of the task, and a part of the fault's message; True if the schema detects it, too.
IN_A_TASK = [
    ("port: 0", "tasks[0].port = 0: expected at least 1", True),
    ("port: 65536", "tasks[0].port = 65536: expected at most 65535", True),
    ("port: http", "tasks[0].port = 'http': expected a number", True),
    ("port: true", "tasks[0].port = True: expected a whole number", True),
    ("port: 010", "tasks[0].port = '010': expected a number without", False),
    ("port: '80'", "tasks[0].port = '80': expected a number without", True),
    ("resources: {cores: '2'}", "resources.cores = '2': expected a number", True),
    ("chunks: 0", "tasks[0].chunks = 0: expected at least 1", True),
    ("chunks: 100001", "tasks[0].chunks = 100001: expected at most 100000", True),
    ("chunks: 2.5", "tasks[0].chunks = 2.5: expected a whole number", True),
    ("foreach: []", "tasks[0].foreach = []: expected a list of 1 to 100000 values", True),
    ("foreach: abc", "tasks[0].foreach = 'abc': expected a list", True),
    ("foreach: [a, [b]]", "tasks[0].foreach[1] = ['b']: expected text", True),
    ("foreach: ['']", "tasks[0].foreach[0] = '': expected text that is not empty", False),
    ("max_parallel: 2", "tasks[0].max_parallel: needs chunks or foreach in the step", True),
    ("output: out", "tasks[0].output: needs chunks or foreach in the step", True),
    ("split: 2", "tasks[0].split: needs chunks or foreach in the step", True),
    ("gang: 0", "tasks[0].gang = 0: expected at least 1", True),
    ("gang: 1001", "tasks[0].gang = 1001: expected at most 1000", True),
    ("gang: '2'", "tasks[0].gang = '2': expected a number without", True),
    ("worker_count: 2", "worker_count = 2: expected no value; only for training", True),
    ("args: [a]", "tasks[0].args: no value; only for training programs", True),
    ("package_path: t", "package_path = 't': expected no value; only for training", True),
    ("module_name: a.b", "tasks[0].module_name = a key of another type", True),
    ("retries: 11", "tasks[0].retries = 11: expected at most 10", True),
    ("retries: -1", "tasks[0].retries = -1: expected at least 0", True),
    ("timeout: 0", "tasks[0].timeout = 0: expected more than 0", True),
    ("timeout: -1", "tasks[0].timeout = -1: expected seconds, more than 0", True),
    ("timeout: soon", "tasks[0].timeout = 'soon': expected seconds", True),
    ("timeout: 1:30", "tasks[0].timeout = '1:30': expected seconds", False),
    ("timeout: .inf", "tasks[0].timeout = '.inf'", False),
    ("timeout: 1e999", "tasks[0].timeout = inf", False),
    (
        "resources: {cpu: 1}",
        "resources.cpu = 1: no such key; expected one of pool, cores, ram_gb, gpus",
        True,
    ),
    ("resources: {ram: 1}", "ram_gb, gpus; did you mean ram_gb?", True),
    ("resources: {cores: 0}", "resources.cores = 0: expected more than 0", True),
    ("resources: {ram_gb: much}", "resources.ram_gb = 'much'", True),
    ("resources: {gpus: -1}", "resources.gpus = -1: expected at least 0", True),
    ("resources: {pool: a, cores: 1}", "resources.pool = 'a' beside cores", True),
    ("resources: 4", "tasks[0].resources = 4", True),
    ("cluster: {n_workers: 2}", "cluster.n_workers = 2: no such key; expected one of num_w", True),
    ("cluster: {nprocs: 0}", "cluster.nprocs = 0: expected at least 1", False),
    ("cluster: big", "tasks[0].cluster = 'big': expected a mapping", True),
    ("env: {A-B: c}", "tasks[0].env.A-B = a value not shown: expected a name of", True),
    ("env: {HYPERPLANE_JOB_ID: c}", "not beginning with HYPERPLANE_JOB_", True),
    ("env: {hyperplane_job_id: c}", "not beginning with HYPERPLANE_JOB_", False),
    ("env: [A]", "tasks[0].env = a value not shown: expected a mapping", True),
    ("secrets: {A: hunter2}", "secrets = a value not shown: expected a list", True),
    ("secrets: [../etc]", "secrets[0] = a value not shown: expected the name", True),
    ("more_memory: 2", "more_memory: needs resources.ram_gb or cluster", True),
    (
        "more_memory: 2\n    cluster: {num_workers: 1}",
        "more_memory: needs a memory to multiply: set cluster.ram_gb_per_proc or",
        False,
    ),
    ("more_memory: 1", "tasks[0].more_memory = 1: expected more than 1", True),
    (
        "resources: {ram_gb: 1}\n    more_memory: 17",
        "more_memory = 17: expected at most 16",
        True,
    ),
    (
        "resources: {ram_gb: 1}\n    retries: 0\n    more_memory: 2",
        "more_memory: needs retries; the step has retries: 0",
        True,
    ),
    ("forecast: a.py:b", "forecast: needs pool: auto in resources or cluster of the step", True),
    ("resources: {pool: '16_16'}\n    forecast: a.py:b", "forecast: needs pool: auto", True),
    (f"{AUTO}forecast: a.py", "tasks[0].forecast = 'a.py': expected FILE.py:NAME, a Python", True),
    (f"{AUTO}forecast: a.txt:b", "forecast = 'a.txt:b': expected FILE.py:NAME", True),
    (f"{AUTO}forecast: a.py:b-c", "forecast = 'a.py:b-c': expected FILE.py:NAME", True),
    (f"{AUTO}forecast: [a.py:b]", "forecast = ['a.py:b']: expected text", True),
    (f"{AUTO}forecast: gone.py:b", "forecast = 'gone.py': expected an existing file in", False),
    (f"{AUTO}forecast: ../p.py:b", "forecast = '../p.py': expected a path inside", False),
    (f"{AUTO}gang: 2\n    forecast: a.py:b", "no value for a step of several processes", True),
    (
        f"{AUTO}cluster: {{framework: ray}}\n    forecast: a.py:b",
        "expected no value for a cluster of ray; only collections of Dask are forecast",
        False,
    ),
    ("command: [ls]", "command = a key of another type: expected bash_script_path", True),
    ("py_path: a.sh", "py_path = a key of another type: expected bash_script_path", True),
    ("notebook_output_path: o", "notebook_output_path = 'o': expected no value", True),
    ("kernel: ir", "tasks[0].kernel = 'ir': expected no value; only notebooks", True),
    ("depends_on:", "tasks[0].depends_on is not set; expected a list of names", True),
    ("depends_on: b", "tasks[0].depends_on = 'b': expected a list", True),
    ("depends_on: [a]", "tasks[0].depends_on[0] = 'a': expected the name of another", False),
    ("depends_on: [b]", "tasks[0].depends_on[0] = 'b': expected the name of a step", False),
    ("depend_on: []", "did you mean depends_on?", True),
    ("retry: 2", "tasks[0].retry = 2: no such key; expected one of type, notebook_path, ", True),
    ("password: hunter2", "tasks[0].password = <str>: no such key; expected one of", True),
    ("working_dir: gone", "tasks[0].working_dir = 'gone': expected an existing folder", False),
    ("working_dir: ..", "tasks[0].working_dir = '..': expected a path inside", False),
    ("bash_script_path: b.sh", "'bash_script_path' repeated, first in line 6", False),
    ("bash-script-path: b.sh", "bash-script-path: repeated; first in line 6", True),
    ("port: &x 80", "the anchor or alias 'x'", False),
    ("port: *x", "the anchor or alias 'x'", True),
    ("port: !!int 80", "the tag 'tag:yaml.org,2002:int'", False),
    ("port: !!python/object:os.system {}", "the tag 'tag:yaml.org,2002:python/object", True),
    ("? [a]\n    : b", "a list or mapping as a key", True),
    ('"a\\e[31mb": 1', "'tasks[0].a\\x1b[31mb' = 1: no such key", True),
    ("port: [", "expected YAML", True),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.sh").write_text("true\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(folder: Path, text: str) -> str:
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        read_pipeline(file)
    return str(caught.value)


@pytest.mark.parametrize(("line", "expected", "_"), IN_A_TASK)
def test_a_fault_in_a_task_has_its_line(folder, line, expected, _):
    message = refused(folder, TASK.format(line))
    assert expected in message
    at = 6 + len(line.split("\n")) + (line == "port: [")  # detected at the end of the file
    assert re.search(rf"p.yaml line [7{at}]\b", message)
    assert "hunter2" not in message


@pytest.mark.parametrize("line", [line for line, _, by_schema in IN_A_TASK if by_schema])
def test_the_schema_refuses_the_faults_that_it_can_detect(line):
    try:
        content = yaml.safe_load(TASK.format(line))
    except yaml.YAMLError:
        return
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(content))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "p.yaml line 1 = not a mapping: expected a mapping"),
        ("- a", "not a mapping: expected a mapping with the key"),
        ("name: x\ntasks: []", "line 1: pipeline is not set; expected a mapping"),
        ("pipeline:\n  name: x\nname: y", "line 3: name: repeated; first in line 2"),
        ("pipeline:\n  name: x\n  name: [y]", "line 3 = 'name' repeated, first in line 2"),
        ("pipeline: [a]", "line 1: pipeline = not a mapping"),
        ("pipeline:\n  name: x", "tasks is not set; expected a list with at least one task"),
        ("pipeline:\n  tasks:\n    a: b", "line 2: tasks = not a list"),
        (
            "pipeline:\n  tasks: [a]",
            "line 2: tasks[0] = not a mapping: expected a mapping with name",
        ),
        ("pipeline:\n  tasks: [{}]", "line 2: tasks[0].name is not set; expected a value"),
        ("pipeline:\n  tasks: [{type: bash}]", "tasks[0].bash_script_path is not set"),
        ("pipeline:\n  tasks: [{type: [a]}]", "tasks[0].type = not text: expected one of"),
        ("pipeline:\n  tasks: [{type: pyton}]", "'pyton': expected one of 'jupyter notebook'"),
        ("pipeline:\n  tasks: [{type: pyton}]", "did you mean python"),
        (
            "pipeline:\n  tasks: [{type: command, command: ls -l}]",
            "write the words as a list",
        ),
        ("pipeline:\n  tasks: [{name: a, type: command, command: ['']}]", "the name of a program"),
        ("pipeline:\n  name:", "name is not set; expected a value"),
        ("pipeline:\n  name: [x]", "line 2: name = ['x']: expected text"),
        ("pipeline:\n  name: '" + "x" * 129 + "'", "text of 1 to 128 characters"),
        ('pipeline:\n  name: "a\\nb"', "in one line, without control characters"),
        (
            "pipeline:\n  requirements: r.txt",
            "line 2: requirements = 'r.txt': expected an existing file",
        ),
        ("pipeline:\n  reqirements: r.txt", "did you mean requirements?"),
        ("a: b\n---\nc: d", "a second document: expected one document"),
        ("pipeline:\n  name:\n\tA: b", "line 3 = a tab in the indentation, and it is ambiguous"),
        ("pipeline:\n  env: {\n\tA: b", "a tab in the indentation, and it cannot be parsed"),
        ("pipeline: \x07", "expected YAML"),
    ],
)
def test_a_fault_outside_of_a_task_is_reported(folder, text, expected):
    assert expected in refused(folder, text)


def test_all_faults_come_at_once_in_the_order_of_their_lines(folder):
    message = refused(
        folder,
        """\
pipeline:
  nam: x
  requirements: gone.txt
  tasks:
  - name: one
    type: jupiter
    notebook_path: gone.ipynb
  - name: two
    type: bash
    bash_script_path: ../a.sh
    depends_on: [three]
    retries: 11
  - name: three
    type: py
    py_path: gone.py
  - name: one
    type: bash
    bash_script_path: b.sh
    depends_on: [for]
""",
    )
    places = [
        re.split(" = | is not set", line.split("p.yaml line ")[1])[0]
        for line in message.splitlines()[1:]
    ]
    assert places == [
        "2: pipeline.nam",
        "2: name",
        "3: requirements",
        "6: tasks[0].type",
        "7: tasks[0].notebook_path",
        "10: tasks[1].bash_script_path",
        "12: tasks[1].retries",
        "13: tasks[2].depends_on",
        "15: tasks[2].py_path",
        "16: tasks[3].name",
        "18: tasks[3].bash_script_path",
        "19: tasks[3].depends_on[0]",
    ]
    assert "three -> two -> three" in message or "two -> three -> two" in message
    assert "'b.sh': expected an existing file" in message
    assert "did you mean a.sh?" in message


def test_the_first_of_duplicate_keys_is_read(folder):
    message = refused(folder, TASK.format("port: 0\n    port: 80"))
    assert "tasks[0].port = 0: expected at least 1" in message


def test_long_values_are_shortened(folder):
    long, key = "x" * 20_000, "k" * 900
    task = f"type: {long}, {key}: 1, {key}: 2, cluster: {{{key}: 1}}, env: {{{key}-: 1}}"
    message = refused(
        folder,
        f"pipeline:\n  {key}: 1\n  name: {long}\n  requirements: {long}\n"
        f"  tasks:\n  - {{{task}, bash_script_path: {long}, depends_on: [{long}]}}\n",
    )
    assert len(message.splitlines()) == 12
    assert "x" * 200 not in message
    assert "k" * 200 not in message
    assert max(map(len, message.splitlines())) < 600, "one lists all arguments of a cluster"


def test_unknown_keys_are_reported_as_those_of_the_configuration(folder):
    (folder / "p.yaml").write_text(
        "colour: red\npipeline:\n  nam: x\n  tasks:\n  - name: a\n    type: bash\n"
        "    bash_script_path: a.sh\n    retry: {a: 1}\n    resources: {cpu: 1}\n"
        "    cluster: {workers: 2}\n"
    )
    with pytest.raises(RequestError) as caught:
        read_pipeline(folder / "p.yaml")
    found = [fault for fault in caught.value.faults if isinstance(fault, UnknownKey)]
    assert [(fault.where.partition(": ")[2], fault.asked) for fault in found] == [
        ("colour", "'red'"),
        ("pipeline.nam", "'x'"),
        ("tasks[0].retry", "<dict>"),
        ("tasks[0].resources.cpu", "1"),
        ("tasks[0].cluster.workers", "2"),
    ]
    assert found[1].allowed == "one of name, requirements, working_dir, job_type, tasks"
    assert not isinstance(caught.value, UnknownArgument)


def test_only_the_first_unknown_keys_list_the_known_ones(folder):
    lines = "".join(f"key{number}: 1\n" for number in range(2_000))
    message = refused(folder, f"{lines}pipeline: {{}}\n")
    assert message.count("no such key") == 2_000
    assert message.count("expected one of") == 50


@pytest.mark.parametrize("key", ["pipelin", "Pipelines", "pipe line s"])
def test_a_misspelled_pipeline_is_one_fault_with_the_right_name(key: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("true")
    file = tmp_path / "p.yaml"
    text = TASK.format("")
    file.write_text(text.replace("pipeline:", f"{key}:"))
    with pytest.raises(RequestError) as caught:
        read_pipeline(file)
    (fault,) = caught.value.faults
    assert fault.where == f"p.yaml line 1: {key}"
    assert fault.advice == "did you mean pipeline?"
    file.write_text(
        text.replace("pipeline:", f"{key}:").replace("name: p", "name: p\n  job_tipe: basic")
    )
    with pytest.raises(RequestError) as caught:
        read_pipeline(file)
    assert [each.advice for each in caught.value.faults] == [
        "did you mean pipeline?", "did you mean job_type?",
    ]  # fmt: skip
