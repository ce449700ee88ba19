"""Pipelines of different shapes: as an exported machine they do what they do as a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest
from job_cases import LIMIT, bash
from runner_cases import HOSTILE

from hyperplane.asl.batch_jobs import BatchJobs
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.exporters.asl import BATCH

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no step reads the parameter"),
]

#: Writes its arguments, its folder and those variables that a step has beyond the environment.
SHOW = """
import json, os, pathlib, sys
begins = ("HYPERPLANE_JOB_PARAMETER_", "HYPERPLANE_SHARD_", "HYPERPLANE_CLUSTER", "MY_")
exact = ("HYPERPLANE_JOB_STEP", "HYPERPLANE_JOB_PIPELINE", "PYTHONUNBUFFERED", "CHUNK_ID", "DAY")
seen = {k: v for k, v in os.environ.items() if k in exact or k.startswith(begins)}
name = f"{sys.argv[1]}-{os.environ['HYPERPLANE_JOB_PARAMETER_CHUNK_ID']}.json"
here = os.path.relpath(os.getcwd(), os.environ["ROOT"])
text = json.dumps([sys.argv[1:], here, seen], sort_keys=True)
pathlib.Path(os.environ["ROOT"], name).write_text(text)
"""


def show(name: str, *words: str, **options: Any) -> Step:
    """Return a step that shows what it has got."""
    argv = (sys.executable, "show.py", name, *words)
    return Step(name=name, kind="command", argv=argv, **options)


def once(name: str, fails: str, **options: Any) -> Step:
    """Return a step whose first attempt runs the line of shell ``fails``."""
    mark = f"{name}-$CHUNK_ID"
    return bash(
        name,
        f'echo x >> "{mark}"; test -e "{mark}-2" || {{ touch "{mark}-2"; {fails}; }}',
        **options,
    )


def script(folder: Path, path: str, text: str) -> str:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    return path


def linear(folder: Path) -> list[Step]:
    return [show("one"), show("two", "a b", "$HOME"), show("three", *filter(None, HOSTILE))]


def diamond(folder: Path) -> list[Step]:
    return [
        bash("first", "echo 1 > first"),
        bash("left", "cat first > left", depends_on=("first",)),
        bash("right", "cat first > right", depends_on=("first",)),
        bash("late", "cat right > late", depends_on=("right",)),
        bash("last", "cat left late > last", depends_on=("left", "late")),
    ]


def fan_out(folder: Path) -> list[Step]:
    return [
        bash("make", "for i in 0 1 2 3; do echo $i > in-$i; done"),
        bash("each", 'cp "in-$CHUNK_ID" "out-$CHUNK_ID"', chunks=4),
        show("parts", "x", chunks=3, depends_on=("make",)),
        bash("all", "cat out-* > all", depends_on=("each",)),
    ]


def environments(folder: Path) -> list[Step]:
    env = {f"MY_{number}": text for number, text in enumerate(HOSTILE)}
    own = {"CHUNK_ID": "mine", "HYPERPLANE_SHARD_COUNT": "99", "DAY": "Friday"}
    return [
        show("plain", env=env),
        show("chunks", chunks=2, env=own),
        show("index", env={"HYPERPLANE_SHARD_INDEX": "7"}, chunks=2),
        show("cluster", cluster={"nprocs": 2, "ram_gb_per_proc": 1}),
    ]


def repeated(folder: Path) -> list[Step]:
    return [
        once("simple", "exit 1", retries=1),
        once("chunks", 'test "$CHUNK_ID" != 1', chunks=3, retries=2),
        once("killed", "kill -9 $$", retries=1),
    ]


def late(folder: Path) -> list[Step]:
    return [
        once("slow", "sleep 600", timeout=3, retries=1),
        once("chunk", 'test "$CHUNK_ID" != 1 || sleep 600', timeout=3, chunks=2, retries=1),
        bash("ended", "echo x > ended", timeout=3600),
    ]


def failing(folder: Path) -> list[Step]:
    return [
        bash("good", "echo x > good"),
        bash("bad", 'echo x >> "bad-$CHUNK_ID"; test "$CHUNK_ID" != 1', chunks=2, retries=1),
        bash("never", "echo x > never"),
    ]


def names(folder: Path) -> list[Step]:
    texts = ("a b", "a-b", "a/b", "Übung 1", "數", "--", "x" * 128, "wave 1", "$(touch canary)")
    return [bash(text, f"echo {number} > out-{number}") for number, text in enumerate(texts)]


def kinds(folder: Path) -> list[Step]:
    copy = "import pathlib, sys\npathlib.Path('python').write_text(str(sys.argv[1:]))\n"
    return [
        Step(
            name="sh",
            kind="bash",
            path=script(folder, "my scripts/a b.sh", "pwd -P | wc -l > sh\n"),
        ),
        Step(name="py", kind="python", path=script(folder, "my scripts/it's.py", copy)),
        Step(name="dash", kind="bash", path=script(folder, "-x.sh", "echo $# > dash\n")),
    ]


def waits(folder: Path) -> list[Step]:
    """Return steps without dependencies on each other, and one of all."""
    steps = [bash(f"s{number}", f"echo {number} > s{number}", depends_on=()) for number in range(5)]
    return [*steps, bash("sum", "cat s? > sum", depends_on=tuple(step.name for step in steps))]


SHAPES: tuple[Callable[[Path], list[Step]], ...] = (
    linear, diamond, fan_out, environments, repeated, late, failing, names, kinds, waits
)  # fmt: skip
PARAMETERS = {
    "day": "Monday", "with space": "a b", "it's": "'\"$(touch canary)`", "größe": "數\n2",
    "number": 3, "yes": True, "list": [1, "a"], "path": "/evil", "empty": "", "chunk_id": "given",
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_machine_does_what_the_job_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Callable[[Path], list[Step]]
) -> None:
    results = {}
    waiting = {"hyperplane.jobs.retry_wait": "0s", "hyperplane.jobs.retry_wait_most": "0s"}
    for place in ("job", "machine"):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "show.py").write_text(SHOW)
        monkeypatch.chdir(folder)
        with dask.config.set(waiting):
            steps = [
                step.model_copy(update={"env": {**step.env, "ROOT": str(folder)}})
                for step in shape(folder)
            ]
            pipeline = Pipeline.from_steps("test", steps, root=folder)
            if place == "job":
                job = submit(pipeline, parameters=PARAMETERS)
                job.wait(LIMIT)
                ended = job.status == "done"
            else:
                ended = run_exported(pipeline, folder)
        files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
        results[place] = {str(name): path.read_text() for name, path in files.items()}
        results[place]["ended well"] = str(ended)
    assert results["machine"] == results["job"]
    assert "canary" not in results["machine"]
    assert results["machine"]["ended well"] == str(shape is not failing)


def run_exported(pipeline: Pipeline, folder: Path) -> bool:
    """Run an exported machine; return whether it has not failed."""
    machine = read_machine(json.loads(json.dumps(pipeline.to_asl(PARAMETERS))))
    data = {"job_queue": "q", "job_definition": "d"}
    try:
        jobs = {BATCH: BatchJobs(str(folder))}
        assert run_machine(machine, data, jobs, sleep=lambda seconds: None) == data
    except MachineFailed:
        return False
    return True
