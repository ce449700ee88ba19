"""Requests to AWS Batch, without a service: their validity, names, sizes, files and faults."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import dask
import pytest
from botocore.validate import ParamValidator
from runner_cases import command, make_job, typical

import hyperplane
from hyperplane import config
from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step, calls
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.runners import registry, task_program
from hyperplane.jobs.runners.aws_batch.requests import (
    build_definition,
    plan_submission,
    task_size,
)
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.jobs.runners.aws_batch.step_checks import (
    find_option_faults,
    find_resource_faults,
    find_step_faults,
)
from hyperplane.jobs.runners.container_program import read_task_program
from hyperplane.jobs.runners.first_attempts import first_attempts
from hyperplane.jobs.runners.staged_code import (
    TaskFile,
    build_archive,
    collect_files,
    list_folder,
    list_package,
)
from hyperplane.jobs.runners.task_manifest import (
    build_manifest,
    dump_manifest,
    with_notebook_program,
)
from hyperplane.platforms.aws.service_check import ComputeEnvironment
from hyperplane.platforms.aws.task_sizes import fargate_price
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import AwsBatchSettings

ROLE = "arn:aws:iam::123456789012:role/steps"
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:database"
PREFIX = Path("/jobs/6f1d2c3b-0000-4000-8000-000000000001/steps/001-years/chunk-00002/attempt-1")
STEP = command("years", "python", "-c", "x", resources=Resources(cores=1.5, ram_gb=2))
PROGRAM = TaskFile("task_program.py", b"print(1)")
#: Limits of Amazon for the payload of a submission, and for a job definition.
MAX_JOB, MAX_DEFINITION, MAX_OVERRIDES = 30 << 10, 24 << 10, 8192


def settings(**options: Any) -> AwsBatchSettings:
    needed = {"queue": "nightly", "image": "a/b:1", "staging": "s3://flights/jobs"}
    return AwsBatchSettings(**{**needed, **options})


def attempt(chunk: int = 2, **variables: str) -> AttemptCommand:
    prefix = PREFIX.parent.with_name(f"chunk-{chunk:05d}") / PREFIX.name
    return AttemptCommand(
        ("python", "-c", "x"),
        {"PATH": "/home/me/bin", "TOKEN": "s3cret"},
        ".",
        prefix,
        step_variables={"CHUNK_ID": str(chunk), "TOKEN": "not this one", **variables},
        secret_variables={"TOKEN": "s3cret"},
    )


def faults(operation: str, request: dict[str, Any]) -> str:
    """Return what botocore's model of the service finds in a request."""
    model = botocore.session.get_session().get_service_model("batch")
    shape = model.operation_model(operation).input_shape
    return str(ParamValidator().validate(request, shape).generate_report())


@pytest.mark.parametrize("platform", ["ec2", "fargate"])
def test_requests_follow_the_model_of_the_service(platform: str) -> None:
    options = {"platform": platform, "job_role": ROLE, "execution_role": ROLE}
    more = settings(
        **options, public_ip=True, secrets=[f"TOKEN={ARN}"], environ=["TZ=UTC"], tags=["team=a b"],
        log_group="/flights", region="eu-west-1",
    )  # fmt: skip
    step = STEP.model_copy(update={"secrets": ("TOKEN",), "timeout": 600.0})
    planned = plan_submission([attempt(0), attempt(1)], step, 1.0, more, PROGRAM, [])
    assert faults("RegisterJobDefinition", planned.definition) == ""
    assert faults("SubmitJob", planned.job) == ""
    assert "queue" in faults("SubmitJob", {**planned.job, "queue": "x"})  # the check works
    assert planned.job["arrayProperties"] == {"size": 2}
    container = planned.definition["containerProperties"]
    assert {each["name"] for each in container["secrets"]} >= {"TOKEN"}
    assert planned.definition["timeout"] == {"attemptDurationSeconds": 730}


def test_no_secret_is_in_a_request_or_a_manifest() -> None:
    planned = plan_submission(
        [attempt()], STEP.model_copy(update={"secrets": ("TOKEN",)}), 1.0,
        settings(secrets=[f"TOKEN={ARN}"]), PROGRAM, [],
    )  # fmt: skip
    text = json.dumps(planned)
    assert "s3cret" not in text
    assert "not this one" not in text
    assert "/home/me" not in text
    assert "s3cret" not in repr(attempt())


def test_requests_have_the_same_length_for_many_chunks_and_long_values() -> None:
    commands = [attempt(chunk, TEXT="x" * 50_000) for chunk in range(500)]
    planned = plan_submission(commands, STEP, 1.0, settings(), PROGRAM, [])
    assert len(json.dumps(planned.job)) < MAX_JOB
    assert len(json.dumps(planned.job["containerOverrides"])) < MAX_OVERRIDES
    assert len(json.dumps(planned.definition)) < MAX_DEFINITION
    # The long value is once in the manifest.
    assert len(dump_manifest(planned.manifest)) < 200_000


def test_a_definition_has_the_name_of_its_content() -> None:
    size = TaskSize(2, 2048)
    one = build_definition(STEP, size, {}, settings())
    assert build_definition(STEP, size, {}, settings()) == one
    others = [
        build_definition(STEP, TaskSize(2, 4096), {}, settings()),
        build_definition(STEP, size, {}, settings(image="a/b:2")),
        build_definition(STEP, size, {"A": ARN}, settings()),
    ]
    assert len({each["jobDefinitionName"] for each in (one, *others)}) == 4


@pytest.mark.parametrize(
    ("resources", "factor", "platform", "expected"),
    [
        (Resources(), 1.0, "ec2", TaskSize(1, 1908)),
        (Resources(cores=1.5, ram_gb=2), 2.0, "ec2", TaskSize(2, 3815)),
        (Resources(gpus=2), 1.0, "ec2", TaskSize(1, 1908, 2)),
        (Resources(cores=0.25, ram_gb=0.3), 1.0, "fargate", TaskSize(0.25, 512)),
        (Resources(cores=1, ram_gb=20), 1.0, "fargate", TaskSize(4.0, 19456)),
        (Resources(cores=16, ram_gb=100), 1.0, "fargate", TaskSize(16.0, 98304)),
        (Resources(cores=16, ram_gb=100), 2.0, "fargate", None),
        (Resources(gpus=1), 1.0, "fargate", None),
    ],
)
def test_sizes_of_containers(
    resources: Resources, factor: float, platform: str, expected: TaskSize | None
) -> None:
    step = STEP.model_copy(update={"resources": resources})
    assert task_size(step, factor, settings(platform=platform)) == expected


def test_steps_that_no_compute_environment_can_run_are_refused() -> None:
    def pipeline(**resources: float) -> Any:
        return make_job(STEP.model_copy(update={"resources": Resources(**resources)})).pipeline

    some = [
        ComputeEnvironment("small", 4),
        ComputeEnvironment("large", 64, (TaskSize(4, 16384), TaskSize(8, 32768))),
    ]
    assert list(find_resource_faults(pipeline(cores=4, ram_gb=900), settings(), some)) == []
    assert list(find_resource_faults(pipeline(cores=8, ram_gb=33), settings(), some)) == []
    [fault] = find_resource_faults(pipeline(cores=8, ram_gb=34), settings(), some)
    assert "8 vCPU, 32425 MiB, 0 GPUs" in str(fault)
    assert "at most 64 vCPU in large, whose instances have 4 vCPU with 16384 MiB" in str(fault)
    [fault] = find_resource_faults(pipeline(gpus=1), settings(platform="fargate"), [])
    assert "no GPUs on Fargate" in str(fault)


def test_all_missing_settings_are_reported_at_once() -> None:
    names = [fault.where for fault in find_option_faults(AwsBatchSettings(platform="fargate"))]
    expected = ("queue", "image", "staging", "execution_role", "job_role")
    assert names == [f"hyperplane.runners.aws_batch.{name}" for name in expected]


def test_options_that_batch_refuses_are_reported_at_once() -> None:
    tags = [f"t{number}=x" for number in range(50)]
    wrong = settings(environ=["AWS_BATCH_JOB_ID=1", "TZ=UTC", "TOKEN=x"], tags=tags)
    first, second = find_option_faults(wrong)
    assert "names that do not begin with AWS_BATCH" in str(first)
    assert "50 tags: expected at most 49 tags" in str(second).replace("'", "")
    assert find_option_faults(settings(tags=[*tags[:49], "hyperplane-job=x"])) == []
    job = make_job(STEP.model_copy(update={"secrets": ("TOKEN",)}))
    known = settings(environ=wrong.environ, secrets=[f"TOKEN={ARN}"], execution_role=ROLE)
    [fault] = find_step_faults(job.pipeline, known)
    assert fault.where == "hyperplane.runners.aws_batch.environ"
    assert "no variable with a secret of step 'years'" in str(fault)


def test_a_sent_folder_has_no_files_with_keys_and_passwords(tmp_path: Path) -> None:
    secret = (".env", ".env.local", ".aws/credentials", ".ssh/config", "sub/.ssh/id_rsa", "a.pem",
              "sub/ID_RSA", "server.key", ".netrc", ".docker/config.json")  # fmt: skip
    sent = ("a.py", "sub/environment.yaml", "keys.csv", ".config")
    for name in secret + sent:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert sorted(name for name, _ in list_folder(tmp_path)) == sorted(sent)


def test_all_that_a_container_cannot_run_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("polars\n")
    job = make_job(
        command("call", sys.executable, "-m", calls.PROGRAM),
        command("secret", "true", secrets=("a", "b")),
        root=tmp_path,
        requirements="needs.txt",
    )
    options = registry.resolve_options(
        "aws-batch", {**settings().model_dump(exclude_none=True), "secrets": [f"a={ARN}"]}
    )
    found = registry.create_runner("aws-batch", {}, options).find_unsupported(job.pipeline)
    assert [fault.where for fault in found] == [
        "requirements",
        "step 'call': argv",
        "step 'secret': secrets",
        "hyperplane.runners.aws_batch.execution_role",
    ]
    assert "add 'b=ARN' to hyperplane.runners.aws_batch.secrets" in str(found[2])


def test_options_are_settings_over_the_configuration() -> None:
    with dask.config.set({"hyperplane.runners.aws-batch": {"queue": "q1", "image": "a"}}):
        options = registry.resolve_options("aws-batch", {"image": "b", "log-group": "/x"})
    assert (options["queue"], options["image"], options["log_group"]) == ("q1", "b", "/x")
    with pytest.raises(RequestError) as caught:
        registry.resolve_options("aws-batch", {"queu": "x", "staging": "gs://x", "cores": 0})
    assert {fault.where for fault in caught.value.faults} == {
        "runner_options.queu", "runner_options.staging", "runner_options.cores"
    }  # fmt: skip
    assert "did you mean queue?" in str(caught.value)


def test_equal_folders_have_equal_archives(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "lib" / "__pycache__").mkdir(parents=True)
        (folder / ".git").mkdir()
        (folder / "lib" / "a.py").write_text("A = 1\n")
        (folder / "run.sh").write_text("true\n")
        (folder / "run.sh").chmod(0o755)
        (folder / ".git" / "config").write_text(name)
        (folder / "lib" / "__pycache__" / "a.pyc").write_text(name)
    first, second = (build_archive(list_folder(tmp_path / name)) for name in ("one", "two"))
    assert first == second
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert archive.namelist() == ["lib/a.py", "run.sh"]


@pytest.mark.process
def test_the_archive_of_the_package_can_be_imported(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(build_archive(list_package()))) as archive:
        archive.extractall(tmp_path)
    code = "import hyperplane, hyperplane.config as c; print(hyperplane.__file__, len(c.pools()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout
    assert not done.stdout.endswith(" 0\n")
    assert (tmp_path / "hyperplane" / "config_data" / "runners.yaml").is_file()


PROGRAM_CODE = """
import json, os, sys
namespace = {{"__name__": "task_program"}}
exec(compile(open({program!r}).read(), "task_program.py", "exec"), namespace)
manifest = json.load(open({manifest!r}))
os.environ["AWS_BATCH_JOB_ARRAY_INDEX"], os.environ["AWS_BATCH_JOB_ARRAY_SIZE"] = "1", "2"
namespace["run_task"](manifest, lambda key: open(key, "rb").read(), {work!r})
"""


def run_task(tmp_path: Path, manifest: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "manifest.json").write_bytes(dump_manifest(manifest))
    program = tmp_path / "task_program.py"
    program.write_bytes(read_task_program().content)
    code = PROGRAM_CODE.format(
        program=str(program),
        manifest=str(tmp_path / "manifest.json"),
        work=str(work),
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.process
def test_a_task_gets_its_files_variables_and_program(tmp_path: Path) -> None:
    archive = build_archive([("lib/tool.py", Path(task_program.__file__))])
    files = [
        TaskFile("steps/a b.py", b"import os; print(sorted(os.environ)); print(os.getcwd())"),
        TaskFile(".hyperplane/packages", archive, archive=True, importable=True),
    ]
    keys = []
    for number, file in enumerate(files):
        (tmp_path / str(number)).write_bytes(file.content)
        keys.append(str(tmp_path / str(number)))
    show = "print(os.environ['CHUNK_ID'], os.environ['HYPERPLANE_JOB_FOLDER'])"
    code = f"import os, sys, json; {show}; print(json.dumps(dict(os.environ)), sys.argv)"
    commands = [
        replace(attempt(chunk, HYPERPLANE_JOB_FOLDER="."), argv=("python3", "-c", code, "$(x) 'y"))
        for chunk in (7, 8)
    ]
    done = run_task(tmp_path, build_manifest(commands, STEP, files, keys))
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    assert done.stdout.splitlines()[0] == f"8 {work}"
    assert "$(x) 'y" in done.stdout
    assert "AWS_BATCH_JOB_ARRAY" not in done.stdout
    assert f"{work}/.hyperplane/packages:/elsewhere" in done.stdout
    assert (work / "steps" / "a b.py").read_bytes() == files[0].content
    assert (work / ".hyperplane" / "packages" / "lib" / "tool.py").exists()


@pytest.mark.process
@pytest.mark.parametrize("stage", ["folder", "image"])
def test_scripts_are_found_from_another_working_folder(tmp_path: Path, stage: str) -> None:
    image = tmp_path / "image"
    (image / "sub").mkdir(parents=True)
    (image / "sub" / "data").write_text("")
    (image / "top.py").write_text("import os, sys; print(os.getcwd(), sys.argv[0])\n")
    step = Step(name="a", kind="python", path="top.py", working_dir="sub", chunks=2)
    options = settings(**({"root": str(image)} if stage == "image" else {"stage": "folder"}))
    job = make_job(step, root=image)
    moved = AwsBatchRunner({}, options.model_dump()).with_runtime_paths(job)
    commands = list(first_attempts(job, moved, step, moved.pipeline.steps[0]))
    files = collect_files(commands[0], step, str(image), options)
    keys = [str(tmp_path / str(number)) for number in range(len(files))]
    for key, file in zip(keys, files, strict=True):
        Path(key).write_bytes(file.content)
    done = run_task(tmp_path, build_manifest(commands, step, files, keys))
    assert done.returncode == 0, done.stderr
    folder = image if stage == "image" else tmp_path / "work"
    assert done.stdout.replace("/./", "/") == f"{folder}/sub {folder}/top.py\n"


@pytest.mark.process
@pytest.mark.parametrize("options", [{"root": "."}, {"stage": "folder"}])
def test_the_program_of_a_notebook_is_found_from_another_working_folder(
    tmp_path: Path, options: dict[str, str]
) -> None:
    (tmp_path / "image" / "sub").mkdir(parents=True)
    root = str(tmp_path / "image")
    step = Step(name="a", kind="notebook", path="a.ipynb", output_path="b.ipynb", working_dir="sub")
    chosen = settings(**({"root": root} if "root" in options else options))
    job = make_job(step, root=root)
    moved = AwsBatchRunner({}, chosen.model_dump()).with_runtime_paths(job)
    [command] = first_attempts(job, moved, step, moved.pipeline.steps[0])
    show = b"import sys; print(sys.argv)"
    files = [TaskFile(".hyperplane/notebook.py", show), TaskFile("sub/x", b"")]
    for number, file in enumerate(files):
        (tmp_path / str(number)).write_bytes(file.content)
    keys = [str(tmp_path / "0"), str(tmp_path / "1")]
    prepared = with_notebook_program(command, step)
    done = run_task(tmp_path, build_manifest([prepared] * 2, step, files, keys))
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    folder = root if "root" in options else work
    shown = [f"{work}/.hyperplane/notebook.py", f"{folder}/a.ipynb", f"{folder}/b.ipynb"]
    assert done.stdout == f"{shown}\n"


@pytest.mark.process
def test_a_sent_folder_keeps_the_permission_to_execute(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    (folder / "tool").write_text("#!/bin/sh\necho executed\n")
    (folder / "tool").chmod(0o755)
    (folder / "data").write_text("")
    file = TaskFile(".", build_archive(list_folder(folder)), archive=True)
    (tmp_path / "0").write_bytes(file.content)
    commands = [replace(attempt(chunk), argv=("./tool",)) for chunk in (0, 1)]
    done = run_task(tmp_path, build_manifest(commands, STEP, [file], [str(tmp_path / "0")]))
    assert (done.returncode, done.stdout) == (0, "executed\n"), done.stderr
    assert not os.access(tmp_path / "work" / "data", os.X_OK)


@pytest.mark.slow
def test_an_array_has_at_most_the_children_that_batch_allows() -> None:
    step = command("years", "true", chunks=20_000, max_parallel=100_000)
    job = make_job(step)
    runner = AwsBatchRunner({}, settings().model_dump())
    assert runner.chunks_at_once(ResourceAllocator(1, 1e9, 1), step, 4) == 10_000
    [document] = render("aws-batch", job, queue="q", image="i", staging="s3://bucket/x")
    assert json.loads(document.text)["submit_job"]["arrayProperties"] == {"size": 10_000}


@pytest.mark.process
def test_a_changed_file_or_a_missing_program_ends_a_task(tmp_path: Path) -> None:
    file = TaskFile("a.py", b"one")
    (tmp_path / "a").write_bytes(b"two")
    commands = [replace(attempt(chunk), argv=("no-such-program",)) for chunk in (0, 1)]
    done = run_task(tmp_path, build_manifest(commands, STEP, [file], [str(tmp_path / "a")]))
    assert done.returncode == 1
    assert "has changed since the step was submitted" in done.stderr
    (tmp_path / "work").rmdir()
    done = run_task(tmp_path, build_manifest(commands, STEP, [], []))
    assert (done.returncode, done.stderr) == (127, "no-such-program: No such file or directory\n")
    (tmp_path / "work").rmdir()
    shutil.rmtree(tmp_path / "work-program")
    commands = [replace(each, folder="no-such-folder") for each in commands]
    done = run_task(tmp_path, build_manifest(commands, STEP, [], []))
    assert (done.returncode, done.stderr) == (127, "no-such-folder: No such file or directory\n")


def test_files_of_a_step_are_its_script_the_folder_or_none(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    script = tmp_path / "steps" / "a.py"
    script.write_text("print(1)\n")
    (tmp_path / "b.txt").write_text("b\n")
    one = replace(attempt(), script=script)

    def paths(kind: str, **options: Any) -> list[str]:
        step = STEP.model_copy(update={"kind": kind})
        found = collect_files(one, step, str(tmp_path), settings(**options))
        return [file.path for file in found]

    assert paths("python") == ["a.py"]
    assert paths("python", stage="folder") == ["."]
    assert paths("python", root="/srv") == []
    assert paths("notebook")[:2] == ["a.py", ".hyperplane/notebook.py"]
    assert paths("python", send_package=True) == ["a.py", ".hyperplane/packages"]


def test_rendering_needs_no_credentials_and_names_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "a.py").write_text("print(1)\n")
    job = make_job(Step(name="a", kind="python", path="a.py"), root=tmp_path)
    options = {"queue": "q", "image": "i", "staging": "s3://bucket/x", "region": "us-east-1",
               "platform": "fargate", "job_role": ROLE, "execution_role": ROLE}  # fmt: skip
    [document] = render("aws-batch", job, **options)
    shown = json.loads(document.text)
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert shown["uploads"]["a.py"] == f"s3://bucket/x/content/{digest}.py"
    assert "0.0494 USD for an hour (price of 2026-03, https://aws" in shown["cost"]
    assert faults("SubmitJob", shown["submit_job"]) == ""
    assert faults("RegisterJobDefinition", shown["register_job_definition"]) == ""


def test_rendering_reports_all_faults_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        render("aws-batch", typical(), image="no image", root="/srv")
    assert [fault.where for fault in caught.value.faults] == ["runner_options.image"]
    with pytest.raises(RequestError) as caught:
        render("aws-batch", typical(), image="i", root="/srv")
    where = [fault.where for fault in caught.value.faults]
    assert where[:2] == [f"hyperplane.runners.aws_batch.{name}" for name in ("queue", "staging")]
    assert sum("secrets" in each for each in where) == 2


def test_the_cost_of_a_step_names_its_source_or_is_unknown() -> None:
    job = make_job(
        command("a", "true", resources=Resources(pool="16_16"), chunks=10, max_parallel=4)
    )
    options = settings(region="us-east-1").model_dump()
    [line] = AwsBatchRunner({}, options).describe_cost(job)
    assert "cost unknown: no price of the instances of EC2; set price_per_hour" in line
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.7}):
        [line] = AwsBatchRunner({}, options).describe_cost(job)
    assert "0.7 USD for an hour, 4 at once (price_per_hour of the pool, for one node)" in line
    other = settings(region="eu-west-1", platform="fargate").model_dump()
    [line] = AwsBatchRunner({}, other).describe_cost(job)
    assert "cost unknown: no price of Fargate in eu-west-1" in line


@pytest.mark.process
def test_boto3_is_imported_on_first_use() -> None:
    code = (
        "import sys; from hyperplane.jobs.runners import registry; "
        "registry.RUNNERS.load('aws-batch'); "
        "print('boto3' in sys.modules, 'botocore' in sys.modules)"
    )
    package = Path(hyperplane.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=package, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False False"


def budget_faults(job: Any, budget: Any, **options: Any) -> list[str]:
    runner = AwsBatchRunner({}, settings(region="us-east-1", budget=budget, **options).model_dump())
    return list(map(str, runner.find_budget_faults(job)))


def test_a_job_that_may_exceed_its_budget_is_refused() -> None:
    pool = Resources(pool="16_16")
    job = make_job(
        command("a", "true", resources=pool, chunks=10, timeout=3440, retries=1),
        command("b", "true", resources=pool, timeout=1640, retries=0),
        active_timeout=-1.0,
    )
    with dask.config.set({"hyperplane.pools.pool_16_16.price_per_hour": 0.5}):
        # 10 containers, twice an hour, and one for half an hour: the limits of Batch are 130 s
        # longer than those of the steps, and SIGKILL comes 30 s later.
        assert budget_faults(job, "10.25 usd") == []
        [fault] = budget_faults(job, "10.2 USD")
        assert fault.startswith(
            "hyperplane.runners.aws_batch.budget = 10.2 USD: expected at least "
        )
        assert (
            "10.25 USD, the most that the job may take: step 'a': 10 containers, 20 hours" in fault
        )
        assert "(price_per_hour of the pool, for one node)" in fault
        [fault] = budget_faults(job, "5 EUR")[:1]
        assert "expected an amount in USD" in fault
    cores = config.get_pool("16_16").allocatable_cores
    assert budget_faults(job, 20.5 * cores) == []
    assert len(budget_faults(job, f"{20.4 * cores} core-hours")) == 1
    assert budget_faults(job, None) == []


def test_a_budget_keeps_all_its_digits() -> None:
    texts = {"1234.56 USD": "1234.56 USD", "0.00005 usd": "0.00005 USD", 12: "12.0 core-hours"}
    for given, text in texts.items():
        found = AwsBatchSettings(budget=given)
        assert found.budget == text
        assert AwsBatchSettings(**found.model_dump()) == found


def test_a_cost_without_a_bound_or_a_price_is_refused_with_a_budget() -> None:
    steps = command("a", "true"), command("b", "true", timeout=60)
    job = make_job(*steps, active_timeout=-1.0)
    faults = budget_faults(job, "5 USD")
    assert len(faults) == 3
    assert "step 'a': timeout is not set; expected a time limit" in faults[0]
    assert "step 'a': cost = unknown" in faults[1]
    assert "step 'b': cost = unknown" in faults[2]
    # The time limit of the job is one of its steps, too.
    limited = replace(job, active_timeout=3570.0)
    assert budget_faults(limited, "1.1 core-hours") == []
    assert len(budget_faults(limited, "1 core-hours")) == 1


def test_a_step_without_timeout_counts_with_the_limits_of_the_job() -> None:
    """All its chunks, or ``max_parallel``, for the shorter limit and the 30 s until SIGKILL."""
    one_core = Resources(cores=1, ram_gb=1)
    for options, hours in (({}, 240), ({"max_parallel": 2}, 48)):
        step = command("a", "true", resources=one_core, chunks=10, retries=5, **options)
        job = make_job(step, timeout=90_000.0, active_timeout=86_400.0)
        seconds = hours * 30 / 24
        assert budget_faults(job, f"{hours + seconds / 3600 + 0.01} core-hours") == []
        [fault] = budget_faults(job, f"{hours} core-hours")
        assert "expected at least" in fault


def test_more_memory_counts_with_the_largest_container() -> None:
    resources = Resources(cores=1, ram_gb=4)
    step = command("a", "true", resources=resources, timeout=3440, retries=1, more_memory=2)
    largest = TaskSize(1, 8192)
    most = 2 * float(fargate_price("us-east-1", largest) or 0)
    roles = dict.fromkeys(("job_role", "execution_role"), "arn:aws:iam::123456789012:role/r")
    job = make_job(step, active_timeout=-1.0)
    assert budget_faults(job, f"{most + 0.001:.4f} USD", platform="fargate", **roles) == []
    assert budget_faults(job, f"{most - 0.001:.4f} USD", platform="fargate", **roles) != []
