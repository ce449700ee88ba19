"""Parameters that no step reads are reported; those that a step may read are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from job_cases import LIMIT, bash, run_job

import hyperplane
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.submission.unread_parameters import find_unread_parameters

pytestmark = pytest.mark.process

GET = "import os\nprint(os.environ.get('SOURCE'), os.environ['YEAR'])\n"


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def python(text, name="step.py"):
    Path(name).write_text(text)
    return Step(name=name, kind="python", path=name)


def javascript(text):
    Path("step.js").write_text(text)
    return Step(name="js", kind="javascript", path="step.js")


def notebook(*cells, tagged=None):
    document = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "3", "language": "python"}}
    )
    if tagged is not None:
        document.cells.append(nbformat.v4.new_code_cell(tagged, metadata={"tags": ["parameters"]}))
    document.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(document, "step.ipynb")
    return Step(name="nb", kind="notebook", path="step.ipynb")


def unread(step, *names):
    steps = step if isinstance(step, list) else [step]
    return find_unread_parameters(Pipeline.from_steps("p", steps), names)


def test_a_misspelled_name_is_reported_with_the_most_similar_one():
    message = "no step reads the parameter 'sorce': did you mean source?"
    for step in (
        python(GET),
        python(GET + "import some_package, subprocess\n"),
        bash("sh", 'echo "$SOURCE"'),
        bash("sh", "train --input ${SOURCE:-none}"),
        javascript("console.log(process.env.SOURCE)"),
        javascript("import x from 'some-package'; const {SOURCE, YEAR: y} = process.env"),
    ):
        assert unread(step, "sorce") == [message]
    assert unread(notebook("print(source)", tagged="source = 1"), "sorce") == [message]


@pytest.mark.parametrize(
    "text",
    [
        "import os; os.environ['SORCE']",
        "import os; os.getenv('HYPERPLANE_JOB_PARAMETER_SORCE')",
        "import os; [os.environ[f'HYPERPLANE_JOB_PARAMETER_{n}'.upper()] for n in ('sorce',)]",
        "import os; names = ['SORCE', 'SOURCE']; print([os.environ[n] for n in names])",
        "from os import environ as e; print('Sorce' in e)",
    ],
)
def test_names_in_any_form_in_a_script_count_as_read(text):
    assert unread(python(text), "sorce") == []


@pytest.mark.parametrize(
    "text",
    [
        "import os; print(dict(os.environ))",
        "import os; print(os.environ)",
        "import os, sys; print(os.environ[sys.argv[1]])",
        "from os import environ; print({**environ})",
        "import subprocess; subprocess.run(['./x'])",
        "import os; os.system('./x')",
        "import os; print(os.path.expandvars(open('template').read()))",
        "import some_package",
        "from some_package import settings",
        "exec(open('other').read())",
        "this is no Python",
    ],
)
def test_a_script_that_may_read_anything_is_not_reported(text):
    assert unread(python(text), "zebra") == []


def test_a_script_whose_reads_are_all_known_is_reported():
    start = "no step reads the parameter 'zebra': they read"
    assert unread(python(GET), "zebra") == [f"{start} source, year"]
    assert unread(python("import numpy as np, json\nfrom dask import delayed"), "zebra") == [
        f"{start} none"
    ]
    assert unread(python(GET), "source", "year") == []
    assert len(unread(python(GET), "zebra", "sorce", "source")) == 2


def test_modules_and_scripts_beside_a_step_are_read_too():
    Path("package").mkdir()
    Path("package", "__init__.py").write_text("")
    Path("package", "settings.py").write_text("import os\nZEBRA = os.getenv('ZEBRA')\n")
    Path("helper.py").write_text("from package.settings import ZEBRA\n")
    assert unread(python("import helper"), "zebra") == []
    assert unread(python("import helper"), "lion") == [
        "no step reads the parameter 'lion': they read zebra"
    ]
    Path("train.py").write_text(GET)
    for step in (
        bash("sh", 'cd "$(dirname "$0")" && python ./train.py'),
        Step(name="c", kind="command", argv=(sys.executable, "train.py", "--fast")),
        Step(name="c", kind="command", argv=("python3", "-m", "train")),
    ):
        assert unread(step, "source") == []
        assert unread(step, "sorce") == [
            "no step reads the parameter 'sorce': did you mean source?"
        ]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("echo hello > file; sleep 1", True),
        ("for i in 1 2; do echo $i; done", True),
        ("x=1 y='a b'; if [ -e $x ]; then cat $x | sort; fi", True),
        ("make all", False),
        ("env", False),
        ("echo a && ./run", False),
        ("eval $(cat settings)", False),
        ("echo ${!HYPERPLANE_JOB_*}", False),
        ("cat <<EOF\nx\nEOF", False),
        ("X=1 ./run", False),
        ("exec >log; python3 - ", False),
    ],
)
def test_parameters_that_a_shell_may_pass_on_are_not_reported(text, seen):
    assert bool(unread(bash("sh", text), "zebra")) is seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("console.log(1)", True),
        ("const fs = require('node:fs'); console.log(process.env['A_B'])", True),
        ("console.log(process.env)", False),
        ("console.log(process.env[process.argv[2]])", False),
        ("import x from 'some-package'", False),
        ("const {A, ...rest} = process.env; run(rest)", False),
    ],
)
def test_parameters_that_javascript_may_pass_on_are_not_reported(text, seen):
    assert bool(unread(javascript(text), "zebra")) is seen


@pytest.mark.parametrize(
    ("cells", "seen"),
    [
        (["%matplotlib inline\nx = 1", "%time y = 2\nprint(x)"], True),
        (["%%time\nx = 1"], True),
        (["%run other.ipynb"], False),
        (["!make"], False),
        (["files = !ls"], False),
        (["%%bash\nmake"], False),
        (["import some_package"], False),
        (["print(globals())"], False),
    ],
)
def test_parameters_that_a_notebook_may_pass_on_are_not_reported(cells, seen):
    assert bool(unread(notebook(*cells), "zebra")) is seen
    assert bool(unread(notebook(*cells, tagged="year = 1"), "yaer")) is True
    assert unread(notebook(*cells, "print(zebra)"), "zebra") == []
    assert unread(notebook(*cells, "%run x.py zebra"), "zebra") == []


def test_a_parameter_that_one_step_reads_is_not_reported():
    both = [python(GET, "a.py"), bash("sh", "echo $ZEBRA")]
    assert unread(both, "zebra") == []
    assert unread([both[0], bash("sh", "make")], "zebra") == []
    # The job has the similar parameter, too, so this one is no misspelling of it.
    assert unread(bash("sh", "make $MODEL"), "models", "model") == []


def test_a_misspelled_parameter_is_reported_at_submission_and_in_the_log(tmp_path):
    message = "no step reads the parameter 'sorce': did you mean source?"
    with pytest.warns(UserWarning, match=r"did you mean source\?"):
        job = run_job(
            bash("first", "echo ${SOURCE-none}"),
            bash("second", "echo second"),
            parameters={"sorce": "a"},
            max_retries=0,
        )
    assert job.status == DONE
    assert job.logs("first") == f"warning: {message}\nnone\n"
    assert job.logs("second") == "second\n"


#: Runs a batch job at once, truncating its log as Slurm does.
SBATCH = """#!/bin/sh
for word; do case $word in --output=*) log=${word#--output=};; esac; done
cat > "$0.script" && sh "$0.script" > "$log" 2>&1 < /dev/null
echo 7
"""


def test_a_misspelled_parameter_is_reported_in_the_log_of_a_batch_job(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\n"), ("scancel", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    step = bash("first", "echo ${SOURCE-none}")
    with pytest.warns(UserWarning, match=r"did you mean source\?"):
        job = run_job(step, parameters={"sorce": "a"}, max_retries=0, runner="slurm")
    message = "no step reads the parameter 'sorce': did you mean source?"
    assert (job.status, job.logs()) == (DONE, f"warning: {message}\nnone\n")


def test_a_misspelled_parameter_is_reported_by_the_command_line(tmp_path):
    Path("step.sh").write_text("echo ${SOURCE-none}\n")
    program = "from hyperplane.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "job", "run", "step.sh", "-p", "sorce=1"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    message = "warning: no step reads the parameter 'sorce': did you mean source?"
    assert done.stderr.splitlines().count(message) == 1


def test_a_function_reads_what_its_module_names():
    def job(**parameters):
        @hyperplane.job(parameters=parameters, max_retries=0)
        def reads():
            import os

            return os.environ.get("SOURCE_OF_FUNCTION")

        return reads.submit()

    assert job(source_of_function="a").result(LIMIT) == "a"
    with pytest.warns(UserWarning, match=r"did you mean source_of_function\?"):
        assert job(sorce_of_function="a").result(LIMIT) is None


def test_a_missing_file_may_read_any_parameter():
    step = python(GET)
    pipeline = Pipeline.from_steps("p", [step])
    Path("step.py").unlink()
    assert find_unread_parameters(pipeline, ["zebra"]) == []


def test_what_the_program_of_a_forecast_reads_is_read():
    Path("sizes.py").write_text(GET)
    step = bash("sh", "true", forecast="sizes.py:total", resources={"pool": "auto"})
    assert unread(step, "source", "year") == []
    assert "did you mean source?" in unread(step, "sorce")[0]
