"""Steps and pipelines created in Python have the same checks as those of files."""

from __future__ import annotations

import pickle
import re

import pytest

from hyperplane.errors import RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Resources, Step

EVERYTHING = Step(
    name="all",
    kind="notebook",
    path="n.ipynb",
    output_path="out.ipynb",
    kernel="python3",
    depends_on=("first",),
    working_dir="w",
    port=8787,
    foreach=("a", "b\n$(c); 'd' \"e\" é"),
    max_parallel=2,
    retries=3,
    timeout="10m",
    resources=Resources(cores=2, ram_gb="4GB", gpus=1),
    cluster={"num_workers": 2, "memory": {"pause": 0.8}, "pool": "16_16"},
    env={"A": "b=c\nd"},
    secrets=("TOKEN", "database/password"),
    output="s3://bucket/out",
    more_memory=1.5,
    split=2,
)


def command(name: str, *depends_on: str) -> Step:
    return Step(name=name, kind="command", argv=("true",), depends_on=depends_on)


def faults_of(call) -> list[str]:
    with pytest.raises(RequestError) as caught:
        call()
    return [str(fault) for fault in caught.value.faults]


def test_a_step_survives_json_and_pickle():
    assert Step.from_json(EVERYTHING.to_json()) == EVERYTHING
    assert pickle.loads(pickle.dumps(EVERYTHING)) == EVERYTHING
    assert EVERYTHING.timeout == 600
    assert EVERYTHING.resources.ram_gb == 4


def test_a_step_is_immutable():
    with pytest.raises(ValueError, match="frozen"):
        EVERYTHING.retries = 1


def test_all_faults_of_a_step_come_at_once():
    faults = faults_of(
        lambda: Step(
            name=" ",
            kind="bash",
            path="a\nb",
            chunks=True,
            retries=11,
            resources={"cores": -1, "ram": 3},
            cluster={"nprocs": 0, "n_workers": 1},
            env={"A B": "hunter2", "C": 3},
            secrets=["hunter 2", "ghp_" + "a" * 36],
            max_paralel=3,
            split=2,
        )
    )
    assert [re.split(" ?= ?|: ", text)[0] for text in faults] == [
        "resources.cores",
        "resources.ram",
        "name",
        "path",
        "chunks",
        "retries",
        "env.A B",
        "env.C",
        "secrets.0",
        "secrets.1",
        "max_paralel",
        "cluster.n_workers",
        "cluster.nprocs",
    ]
    assert faults[1].startswith("resources.ram = 3: no such key; expected one of pool, cores, ")
    assert faults[10].startswith("max_paralel=3: unknown argument of Step; did you mean max_par")
    assert not any("hunter" in text or "ghp_" in text for text in faults)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "bash"}, "path is not set"),
        ({"kind": "bash", "path": "a", "argv": ("b",)}, "argv = ('b',)"),
        ({"kind": "command"}, "argv is not set"),
        ({"kind": "command", "argv": ()}, "argv = (): expected a value"),
        ({"kind": "command", "argv": ("",)}, "argv.0 = ''"),
        ({"kind": "command", "argv": ("a", "b\0")}, "argv.1 = a value not shown"),
        ({"kind": "command", "argv": "curl -H hunter2"}, "argv = a value not shown"),
        (
            {"kind": "command", "argv": ("a",), "env": {"A": "b"}, "secrets": ("A",)},
            "env.A: is also listed under secrets; keep one of the two",
        ),
        ({"kind": "command", "argv": ("a",), "path": "b"}, "path = 'b'"),
        ({"kind": "command", "argv": ("a",), "chunks": 2, "foreach": ("b",)}, "chunks: the step"),
        ({"kind": "command", "argv": ("a",), "int": 3}, "int=3: unknown argument of Step"),
        ({"kind": "command", "argv": ("a",), "env": {"A": "\0"}}, "env.A = a value not shown"),
        ({"kind": "command", "argv": ("a",), "cluster": {"pool": object()}}, "cluster"),
        ({"kind": "command", "argv": ("a",), "name": "a\u2028b"}, "name = 'a\\u2028b'"),
        (
            {"kind": "bash", "path": "a", "chunks": 2, "output": "s3://key:hunter2@bucket"},
            "output = a value not shown: expected a URL without a password",
        ),
    ],
)
def test_invalid_fields_of_a_step_are_refused(fields, expected):
    faults = faults_of(lambda: Step(**{"name": "a", **fields}))
    assert faults[0].startswith(expected)
    assert "hunter2" not in str(faults)


def test_steps_without_depends_on_wait_for_the_one_before():
    first, second = (Step(name=name, kind="command", argv=("true",)) for name in "ab")
    pipeline = Pipeline.from_steps("p", [first, second, command("c")])
    assert [step.depends_on for step in pipeline.steps] == [(), ("a",), ()]
    assert first.depends_on == second.depends_on == ()


def test_a_pipeline_survives_json_and_pickle():
    pipeline = Pipeline.from_steps("p", [command("a"), command("b", "a")])
    assert Pipeline.from_json(pipeline.to_json()) == pipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_all_faults_of_a_pipeline_come_at_once(tmp_path):
    script = Step(name="a", kind="bash", path="gone.sh", working_dir="..")
    faults = faults_of(
        lambda: Pipeline.from_steps(
            "",
            [script, command("a"), command("b", "c", "d"), command("c", "b")],
            root=tmp_path,
            requirements="gone.txt",
            job_type="a\nb",
        )
    )
    assert [text.partition(" = ")[0] for text in faults] == [
        "name",
        "job_type",
        "steps[1].name",
        "steps[2].depends_on[1]",
        "steps[3].depends_on",
        "requirements",
        "steps[0].path",
        "steps[0].working_dir",
    ]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: Pipeline.from_steps("p", []), "steps is not set; expected at least one step"),
        (lambda: Pipeline.from_steps("p", ["a"]), "steps[0] = str: expected a Step"),
        (lambda: Pipeline.from_steps("p", [command("a")], root="/gone"), "root = '/gone'"),
        (lambda: Pipeline.from_steps("p", [command("a")], requirements="\0"), "requirements = "),
        (lambda: Pipeline(name="p", steps=(command("a", "b"),), root="/"), "steps[0].depends_on"),
        (lambda: Pipeline.from_json("{"), "text = not JSON"),
        (lambda: Pipeline.from_json("[" * 100_000), "text = not JSON"),
        (lambda: Pipeline.from_json("[]"), "text = list"),
        (
            lambda: Pipeline.from_json('{"name": "p", "root": "/", "steps": [{"name": "a"}]}'),
            "steps[0].kind is not set",
        ),
    ],
)
def test_invalid_pipelines_are_refused(call, expected):
    assert faults_of(call)[0].startswith(expected)


def test_more_memory_without_a_memory_is_a_fault_of_new_pipelines_only():
    step = Step(name="a", kind="command", argv=("date",), more_memory=2, cluster={"num_workers": 1})
    with pytest.raises(RequestError, match=r"steps\[0\].more_memory: .*cluster.ram_gb_per_proc"):
        Pipeline.from_steps("p", [step])
    stored = Pipeline(name="p", steps=(step,), root="")
    assert Pipeline.from_json(stored.to_json()).steps[0].more_memory == 2
    sized = step.model_copy(update={"resources": Resources(ram_gb=1)})
    assert Pipeline.from_steps("p", [sized]).steps[0].more_memory == 2


def test_all_faults_of_a_training_program_come_at_once():
    faults = faults_of(
        lambda: Step(
            name="a",
            kind="train",
            module_name="trainer task",
            package_path="t",
            working_dir="w",
            worker_count=-1,
            gang=2,
            path="x.py",
            args="--steps 3",
        )
    )
    text = "\n".join(faults)
    assert "module_name = 'trainer task': expected a module that python -m can run" in text
    for field in ("working_dir", "worker_count", "gang", "path", "args"):
        assert any(fault.startswith(field) for fault in faults), field


@pytest.mark.parametrize(
    ("step", "size"),
    [
        (command("a"), 0),
        (Step(name="a", kind="bash", path="a.sh", gang=3), 3),
        (Step(name="a", kind="javascript", path="a.js", gang=1), 1),
        (Step(name="a", kind="train", module_name="a.b"), 1),
        (Step(name="a", kind="train", module_name="a.b", worker_count=2, evaluator_count=1), 4),
    ],
)
def test_the_size_of_a_gang_counts_all_processes(step, size):
    assert step.gang_size == size


def test_a_notebook_is_no_gang():
    [fault] = faults_of(lambda: Step(name="a", kind="notebook", path="a.ipynb", gang=2))
    assert fault.startswith("gang = 2: expected no value for a notebook")
