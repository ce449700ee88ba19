"""Rendered Slurm jobs, run by bash and a small scheduler."""

import json
import sys
from pathlib import Path

import fake_slurm
import pytest
from runner_cases import HOSTILE, command, make_job, run_rendered, submit_rendered

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.step_environment import PARAMETERS, step_variables
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.store.job_records import WorkUnit

pytestmark = pytest.mark.process

#: Records its arguments and environment: ``see.py FILE ARGUMENT...``; chunks have separate files.
SEE = """
import json, os, sys
name = sys.argv[1] + os.environ.get("SLURM_ARRAY_TASK_ID", "")
with open(name, "w", encoding="utf-8") as file:
    json.dump([dict(os.environ), sys.argv[2:], os.getcwd()], file)
"""


@pytest.fixture
def root(tmp_path):
    """A folder with an awkward name, for pipelines."""
    folder = tmp_path / "it's $(touch canary) a root"
    folder.mkdir()
    (folder / "see.py").write_text(SEE)
    return folder


def seeing(root, name, *argv, **options):
    return command(name, sys.executable, str(root / "see.py"), f"{root}/{name}", *argv, **options)


def saw(root, name):
    return json.loads((root / name).read_text())


def script(step, **options):
    return render("slurm", make_job(step, **options), python="/opt/bin/python")[0].text


def logged(root, text):
    """Return a command that appends a line to the log in the root."""
    return ("bash", "-c", f"sleep 0.02; echo {text} >> log", "x")


def test_steps_run_after_those_that_they_wait_for(root, tmp_path):
    steps = [
        command("last", *logged(root, "last"), depends_on=("left", "right")),
        command("first", *logged(root, "first"), depends_on=()),
        command("left", *logged(root, "left"), depends_on=("first",)),
        command("right", *logged(root, "right"), depends_on=("first",)),
    ]
    codes, _ = run_rendered(make_job(*steps, root=root), tmp_path)
    assert list(codes.values()) == [[0]] * 4
    order = (root / "log").read_text().split()
    assert (order[0], set(order[1:3]), order[3]) == ("first", {"left", "right"}, "last")


def test_nothing_runs_after_a_step_that_failed(root, tmp_path):
    steps = [
        command("a", "false", depends_on=()),
        command("b", *logged(root, "b"), depends_on=("a",)),
        command("c", *logged(root, "c"), depends_on=()),
    ]
    state, done = submit_rendered(make_job(*steps, root=root), tmp_path)
    codes, _ = fake_slurm.run(state)
    assert (root / "log").read_text() == "c\n"
    assert len(codes) == 2
    (waiting,) = [job for job in fake_slurm.jobs(state) if "dependency" in job["options"]]
    assert waiting["options"]["kill-on-invalid-dep"] == "yes"
    assert done.stdout.splitlines() == ["100 000-a.sbatch", "101 002-c.sbatch", "102 001-b.sbatch"]


def test_a_refused_step_cancels_the_submitted_ones(root, tmp_path):
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "refuse").write_text("002")
    steps = [command(name, "true", depends_on=()) for name in "abc"]
    state, done = submit_rendered(make_job(*steps, root=root), tmp_path)
    assert done.returncode == 1
    assert "Invalid partition" in done.stderr
    assert fake_slurm.jobs(state) == []
    assert len(list(state.glob("*.cancelled"))) == 2


def test_hostile_words_and_values_arrive_unchanged(root, tmp_path):
    env = {f"V{place}": text for place, text in enumerate(HOSTILE)}
    parameters = {f"p {place}": text for place, text in enumerate(HOSTILE)}
    step = seeing(root, "x", *HOSTILE, env=env)
    job = make_job(step, root=root, parameters=parameters, name="$(touch canary)\n#SBATCH --mem=1")
    codes, _ = run_rendered(job, tmp_path)
    assert list(codes.values()) == [[0]]
    environment, argv, folder = saw(root, "x")
    assert argv == list(HOSTILE)
    assert folder == str(root)
    expected = step_variables(job, step, WorkUnit("x"), 1)
    assert len(expected) > 3 * len(HOSTILE)
    assert {name: environment.get(name) for name in expected} == expected
    assert list(tmp_path.rglob("canary*")) == []


def test_a_hostile_name_of_a_step_runs_nothing(root, tmp_path):
    names = [
        "$(touch canary)",
        "#SBATCH --mem=1",
        "../../x",
        "'; touch canary; '",
        "größer 🚀",
        "-",
    ]
    steps = [seeing(root, "x", depends_on=(), env={"N": name}) for name in names]
    steps = [
        step.model_copy(update={"name": name}) for step, name in zip(steps, names, strict=True)
    ]
    codes, _ = run_rendered(make_job(*steps, root=root), tmp_path)
    assert list(codes.values()) == [[0]] * len(names)
    assert saw(root, "x")[0]["HYPERPLANE_JOB_STEP"] == "-"
    assert list(tmp_path.rglob("canary*")) == []
    logs = sorted(file.name for file in tmp_path.rglob("*.log"))
    assert logs[:2] == ["000-touch-canary_100.log", "001-SBATCH-mem-1_101.log"]
    assert logs[-1] == "005_105.log"


def test_names_that_are_special_to_bash_are_plain_variables(root, tmp_path):
    names = ("UID", "EUID", "PPID", "RANDOM", "SECONDS", "LINENO", "hyperplane_step", "IFS")
    step = seeing(root, "x", env=dict.fromkeys(names, "7"), retries=1)
    run_rendered(make_job(step, root=root, parameters={"uid": "8", "groups": "9"}), tmp_path)
    environment = saw(root, "x")[0]
    assert {name: environment[name] for name in names} == dict.fromkeys(names, "7")
    assert environment["GROUPS"] == "9"


def test_a_program_may_have_an_equals_sign_in_its_name(root, tmp_path):
    program = root / "a=b"
    program.write_text("#!/bin/sh\necho $A $1 > ran\n")
    program.chmod(0o700)
    steps = [
        command("x", str(program), "'1 2'", env={"A": "B"}),
        command("y", str(program), "3", timeout=60, env={"A": "C", "PATH": "/nonexistent"}),
    ]
    codes, _ = run_rendered(make_job(*steps[:1], root=root), tmp_path)
    assert (codes, (root / "ran").read_text()) == ({100: [0]}, "B '1 2'\n")
    (tmp_path / "again").mkdir()
    codes, _ = run_rendered(make_job(*steps[1:], root=root), tmp_path / "again")
    assert (codes, (root / "ran").read_text()) == ({100: [0]}, "C 3\n")


@pytest.mark.slow
def test_chunks_have_the_same_variables_as_on_this_machine(root, tmp_path):
    step = seeing(root, "x", foreach=HOSTILE_ITEMS, max_parallel=3, cluster={"nprocs": 1})
    # The parameters of a chunk win over those of the job.
    job = make_job(step, root=root, parameters={"item": "no", "chunk_id": "no", "a": "'b'"})
    codes, most = run_rendered(job, tmp_path)
    assert list(codes.values()) == [[0] * len(HOSTILE_ITEMS)]
    assert list(most.values()) == [3]
    for place, item in enumerate(HOSTILE_ITEMS):
        environment, _, _ = saw(root, f"x{place}")
        expected = step_variables(job, step, WorkUnit("x", place, len(HOSTILE_ITEMS)), 1)
        assert environment[PARAMETERS].count('"chunk_id": ') == 1
        parameters = json.loads(environment[PARAMETERS])
        assert parameters == json.loads(expected.pop(PARAMETERS))
        assert (parameters["item"], parameters["chunk_id"]) == (item, str(place))
        assert {name: environment.get(name) for name in expected} == expected
        assert environment["HYPERPLANE_CLUSTER"] == '{"nprocs": 1}'


HOSTILE_ITEMS = tuple(text for text in HOSTILE if text)


def test_chunks_without_parameters_or_items_have_only_their_index(root, tmp_path):
    step = seeing(root, "x", chunks=2, env={"CHUNK_ID": "mine"})
    run_rendered(make_job(step, root=root), tmp_path)
    environment = saw(root, "x1")[0]
    assert json.loads(environment[PARAMETERS]) == {"chunk_id": "1"}
    assert (environment["CHUNK_ID"], environment["HYPERPLANE_SHARD_INDEX"]) == ("mine", "1")
    assert environment["HYPERPLANE_SHARD_COUNT"] == "2"
    assert "ITEM" not in environment


def test_each_chunk_of_a_notebook_has_an_output(root):
    step = Step(name="n", kind="notebook", path="n.ipynb", output_path="o u/t.ipynb", chunks=3)
    text = script(step)
    assert '\'/data/flights/o u/t-\'"$(printf %05d "$SLURM_ARRAY_TASK_ID")".ipynb' in text


def test_the_sbatch_options_are_those_of_the_step():
    step = command(
        "x", "true", chunks=10, max_parallel=4, retries=1, timeout="10m",
        resources=Resources(cores=2.5, ram_gb=4, gpus=2),
    )  # fmt: skip
    # 4 * 10**9 bytes are 3814.7 MiB. Two attempts of 610 s, the delay between them, and 70 s.
    assert [line for line in script(step).splitlines() if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=brisk-otter.000-x",
        "#SBATCH --no-requeue",
        "#SBATCH --output=logs/000-x_%A_%a.log",
        "#SBATCH --array=0-9%4",
        "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem=3815M",
        "#SBATCH --gres=gpu:2",
        "#SBATCH --time=22",
        "#SBATCH --signal=B:TERM@10",
        "#SBATCH --export=PATH",
    ]


@pytest.mark.parametrize(
    ("step", "program"),
    [
        (command("x", "true", chunks=3, timeout=60, secrets=("a/b",), env={"A": "b"}), ""),
        (Step(name="x", kind="python", path="x.py", foreach=("a", "b")), ""),
        (Step(name="x", kind="bash", path="x.sh", depends_on=()), ""),
        (Step(name="x", kind="javascript", path="x.js", cluster={"nprocs": 1}), ""),
        (command("x", "true", retries=1), "jobs/exporters/retry_wrapper.py"),
        (Step(name="x", kind="notebook", path="x.ipynb"), "jobs/notebook.py"),
    ],
)
def test_only_notebooks_and_retries_need_files_of_the_package(step, program):
    package = str(Path(hyperplane.__file__).parent)
    documents = render("slurm", make_job(step), python="/opt/bin/python")
    named = [
        line for document in documents for line in document.text.splitlines() if package in line
    ]
    assert len(named) == bool(program)
    assert f"{package}/{program}" in "".join(named) or not program
    assert not [
        document for document in documents if "hyperplane." in document.text.replace(package, "")
    ]


@pytest.mark.parametrize(("ram", "mebibytes"), [(2**20 / 1e9, 1), ((2**20 + 1) / 1e9, 2), (1, 954)])
def test_memory_is_rounded_up_to_a_mebibyte(ram, mebibytes):
    text = script(command("x", "true", resources=Resources(ram_gb=ram)))
    assert f"#SBATCH --mem={mebibytes}M\n" in text


def test_a_step_without_resources_gets_the_defaults_of_the_site():
    text = script(command("x", "true"))
    for option in ("mem", "cpus", "gres", "time", "array", "signal"):
        assert f"--{option}" not in text


def test_variables_of_sbatch_do_not_overrule_the_scripts(root, tmp_path):
    job = make_job(seeing(root, "x", chunks=1), root=root)
    overruling = {"SBATCH_EXPORT": "ALL", "SBATCH_ARRAY_INX": "0-9", "SECRET_OF_OTHERS": "s3cret"}
    codes, _ = run_rendered(job, tmp_path, overruling)
    assert list(codes.values()) == [[0]]
    assert "SECRET_OF_OTHERS" not in saw(root, "x0")[0]


def test_a_script_that_is_too_long_is_a_fault():
    step = command("x", "true", foreach=tuple(["x" * 100] * 50_000))
    with pytest.raises(RequestError, match=r"000-x.sbatch = \d+ bytes: expected at most 4 MiB"):
        script(step)


def test_requirements_are_installed_first(tmp_path):
    (tmp_path / "requirements.txt").write_text("tidy==1\n")
    steps = [command("a", "true", depends_on=()), Step(name="b", kind="python", path="b.py")]
    job = make_job(*steps, root=tmp_path, requirements="requirements.txt")
    install, _, second, submit = render("slurm", job, python="/opt/python")
    assert "  /opt/python \\\n  -m \\\n  hyperplane.jobs.install \\\n" in install.text
    assert "submit 000-pip-install.sbatch\n" in submit.text
    assert "submit 001-a.sbatch 0\n" in submit.text
    assert "/bin/python \\\n" in second.text
    assert "/opt/python" not in second.text


def test_the_folder_of_the_scripts_may_be_anywhere(root, tmp_path):
    folder = tmp_path / "$(touch canary) 'there'"
    folder.mkdir()
    (root / "the scripts").mkdir()
    codes, _ = run_rendered(
        make_job(command("x", "true"), root=root), folder, {"CDPATH": str(root)}
    )
    assert list(codes.values()) == [[0]]
    assert (folder / "the scripts" / "logs" / "000-x_100.log").exists()


def test_a_step_whose_folder_is_missing_does_not_run_in_another_one(root, tmp_path):
    step = command("x", "touch", str(root / "ran"), working_dir="gone", retries=1)
    codes, _ = run_rendered(make_job(step, root=root), tmp_path)
    assert list(codes.values()) == [[1]]
    assert not (root / "ran").exists()
