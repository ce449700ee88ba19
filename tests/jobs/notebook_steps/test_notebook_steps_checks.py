"""Checks of notebooks before they run, and runs of notebooks with little metadata."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest
from job_cases import LIMIT, bash, run_job
from scale import FULL

from hyperplane.errors import RequestError
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.notebook import notebook_language
from hyperplane.jobs.notebook_steps import notebook_checks
from hyperplane.jobs.notebook_steps.notebook_checks import notebook_warnings
from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.submission.unread_parameters import find_unread_parameters

pytestmark = pytest.mark.process

PYTHON = {"name": "python3", "display_name": "3", "language": "python"}


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def step(name, *cells, tagged=None, **metadata):
    """Return a step with a notebook; ``tagged`` is its cell tagged ``parameters``, if any."""
    notebook = nbformat.v4.new_notebook(metadata=metadata)
    if tagged is not None:
        notebook.cells.append(nbformat.v4.new_code_cell(tagged, metadata={"tags": ["parameters"]}))
    notebook.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, f"{name}.ipynb")
    return Step(name=name, kind="notebook", path=f"{name}.ipynb")


def faults(*steps, **options):
    with pytest.raises(RequestError) as caught:
        new_job(Pipeline.from_steps("p", steps, **options))
    return caught.value.faults


def warnings_for(*steps, **parameters):
    pipeline = Pipeline.from_steps("p", steps)
    return notebook_warnings(pipeline, parameters) + find_unread_parameters(pipeline, parameters)


def test_a_missing_kernel_is_reported_at_submission():
    bad = step("bad", "1", kernelspec={"name": "pyhton3", "display_name": "x"})
    r = step("r", "1", language_info={"name": "R"})
    good = step("good", "1", kernelspec=PYTHON)
    first, second = faults(bash("a", "true"), bad, r, good)
    assert (first.where, first.asked) == ("step 'bad': bad.ipynb", "the kernel 'pyhton3'")
    assert first.allowed.startswith("an installed kernel: ")
    assert "python3" in first.allowed
    assert first.advice.startswith("did you mean python3? ")
    assert (second.where, second.asked) == ("step 'r': r.ipynb", "no kernel, and the language 'r'")


def test_a_kernel_may_come_with_the_requirements_or_another_folder(tmp_path):
    bad = step("bad", "1", kernelspec={"name": "mine", "display_name": "x"})
    (tmp_path / "requirements.txt").write_text("ipykernel\n")
    new_job(Pipeline.from_steps("p", [bad], requirements="requirements.txt"))
    new_job(Pipeline.from_steps("p", [bad.model_copy(update={"env": {"JUPYTER_PATH": "/x"}})]))
    new_job(Pipeline.from_steps("p", [bad]), check_machine=False)
    assert len(faults(bad)) == 1


def test_an_installation_without_notebooks_is_reported(monkeypatch):
    monkeypatch.setattr(notebook_checks, "is_installed", lambda package: package != "papermill")
    (fault,) = faults(step("one", "1", kernelspec=PYTHON))
    assert "papermill" in fault.asked
    assert fault.advice == "pip install 'hyperplane[jobs]'"


@pytest.mark.skipif(not FULL, reason="test_cli_job_run.py runs such a notebook, too: at full scale")
def test_a_notebook_that_names_no_kernel_runs_with_python3():
    notebook_step = step("plain", "print(year)", tagged="year = '1'")
    warned = "plain.ipynb names no kernel; it runs with python3"
    assert warnings_for(notebook_step) == [warned]
    with pytest.warns(UserWarning, match=warned):
        job = submit(
            Pipeline.from_steps("p", [notebook_step]), parameters={"year": 7}, max_retries=0
        )
    assert job.wait(LIMIT) == DONE, job.logs()
    # On a busy machine libzmq may complain when the kernel ends.
    assert job.logs().splitlines()[0] == "7"


def test_a_notebook_that_names_no_kernel_needs_python3(monkeypatch):
    monkeypatch.setattr(notebook_checks, "_installed_kernels", list)
    (fault,) = faults(step("plain", "1"))
    assert fault.asked == "no kernel, so python3"
    assert fault.allowed == "an installed kernel: there is none"


def test_a_misspelled_parameter_is_reported_with_the_most_similar_name():
    cell = "%matplotlib inline\nyear: str = '1990'\nrate='1.5'\n# never = 3\nif x == 2: pass"
    magic = step("magic", tagged=cell, kernelspec=PYTHON)
    plain = step("plain", tagged="month, day = '1', '2'\nnames = 'a=1'", kernelspec=PYTHON)
    assert warnings_for(magic, plain, year=1, rate=2, month=3, day=4, names=5) == []
    (warning,) = warnings_for(magic, plain, yaer=1)
    assert warning == "no step reads the parameter 'yaer': did you mean year?"
    assert "did you mean month?" in warnings_for(plain, MONTH=1)[0]
    assert warnings_for(plain, zebra=1) == [
        "no step reads the parameter 'zebra': they read day, month, names"
    ]


def test_a_parameter_that_another_step_may_read_is_not_reported():
    plain = step("plain", tagged="month = 1", kernelspec=PYTHON)
    free = step("free", "print(1)", kernelspec=PYTHON)
    assert warnings_for(plain, bash("a", "echo $LEVEL"), level=1) == []
    unseen = step("unseen", "import some_package", kernelspec=PYTHON)
    assert warnings_for(plain, unseen, level=1) == []
    assert warnings_for(plain, free, level=1) == [
        "no step reads the parameter 'level': they read month"
    ]
    assert len(warnings_for(plain, unseen, mnoth=1)) == 1
    assert warnings_for(bash("a", "some-program"), mnoth=1) == []
    assert warnings_for(bash("a", "true"), mnoth=1) == [
        "no step reads the parameter 'mnoth': they read none"
    ]


@pytest.mark.slow
def test_a_parameter_that_is_no_variable_does_not_break_the_notebook():
    text = "import os; print(month, os.environ['MODEL_NAME'], os.environ['CLASS'])"
    notebook_step = step("plain", text, tagged="month = '1'", kernelspec=PYTHON)
    # Some programs write only the name of the kernel.
    document = json.loads(Path("plain.ipynb").read_text())
    document["metadata"] = {"kernelspec": {"name": "python3"}}
    Path("plain.ipynb").write_text(json.dumps(document))
    parameters = {"model-name": "a b", "class": "c", "month": 2}
    first, second = warnings_for(notebook_step, **parameters)
    assert first.startswith("parameter 'model-name' is not a valid Python variable name")
    assert second.startswith("parameter 'class' is not a valid")
    with pytest.warns(UserWarning, match="not a valid Python variable name"):
        job = run_job(notebook_step, parameters=parameters, max_retries=0)
    assert job.status == DONE, job.logs()
    assert job.logs().splitlines()[0] == "2 a b c"


CONDA = {"name": "conda-root-py", "display_name": "Python [conda root]", "language": "python"}


@pytest.mark.slow
def test_a_missing_python_kernel_is_replaced_with_one_warning():
    text = "import sys; print(sys.executable, year)"
    first = step("first", text, tagged="year = '1'", kernelspec=CONDA)
    both = Pipeline.from_steps("p", [first, step("second", "1", kernelspec=CONDA)])
    (warned,) = notebook_checks.kernel_warnings(both)
    assert warned.startswith("first.ipynb, second.ipynb: the kernel 'conda-root-py' is not inst")
    with pytest.warns(UserWarning, match="first.ipynb: the kernel 'conda-root-py'") as caught:
        job = run_job(first, parameters={"year": 7}, max_retries=0)
    assert len(caught) == 1
    assert job.status == DONE, job.logs()
    notice, printed = job.logs().splitlines()[:2]
    assert "names the kernel 'conda-root-py', which is not installed; it runs with" in notice
    assert printed == f"{sys.executable} 7"


def test_a_missing_kernel_of_another_language_is_refused():
    other = {"name": "ir", "display_name": "R", "language": "R"}
    sage = {"name": "sagemath", "display_name": "SageMath 9", "language": "sage"}
    steps = [
        step("r", "1", kernelspec=other, language_info={"name": "R"}),
        step("sage", "1", kernelspec=sage, language_info={"name": "python"}),
    ]
    first, second = faults(*steps)
    assert first.asked == "the kernel 'ir' of the language r"
    assert second.asked == "the kernel 'sagemath' of the language sage"
    assert first.advice == "select another with kernel: in the step, or install it"
    with_python3 = [
        notebook_step.model_copy(update={"kernel": "python3"}) for notebook_step in steps
    ]
    assert warnings_for(*with_python3) == []
    new_job(Pipeline.from_steps("p", with_python3))


@pytest.fixture
def own_kernel(tmp_path, monkeypatch):
    """Install a kernel ``of-this-test`` that sets the variable CHOSEN."""
    folder = tmp_path / "jupyter" / "kernels" / "of-this-test"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "x", "language": "python", "env": {"CHOSEN": "yes"}}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))


def test_a_step_selects_the_kernel(own_kernel):
    notebook_step = step(
        "chooses", "import os; print(year, os.environ['CHOSEN'])", tagged="year = '1'"
    )
    assert len(warnings_for(notebook_step)) == 1
    notebook_step = notebook_step.model_copy(update={"kernel": "of-this-test"})
    assert warnings_for(notebook_step) == []
    job = run_job(notebook_step, parameters={"year": 3}, max_retries=0)
    assert job.status == DONE, job.logs()
    assert job.logs().splitlines()[0] == "3 yes"


def test_a_step_that_selects_a_missing_kernel_is_refused(own_kernel):
    notebook_step = step("chooses", "1", kernelspec=PYTHON).model_copy(
        update={"kernel": "of-this-tset"}
    )
    (fault,) = faults(notebook_step)
    assert (fault.where, fault.asked) == ("step 'chooses': kernel", "'of-this-tset'")
    assert fault.advice.startswith("did you mean of-this-test?")


@pytest.mark.parametrize(
    ("spec", "info", "language"),
    [
        ({}, {}, ""),
        ({"name": "python3", "display_name": "Python 3"}, {}, "python"),
        ({"name": "x", "display_name": "x"}, {"file_extension": ".py"}, "python"),
        ({"language": "Python"}, {"name": "python"}, "python"),
        ({"language": "python"}, {"name": "pyspark"}, "pyspark"),
        ({}, {"name": "julia"}, "julia"),
    ],
)
def test_the_language_of_a_notebook_is_that_of_its_metadata(spec, info, language):
    assert notebook_language({"kernelspec": spec, "language_info": info}) == language


def type_warning(tagged, *cells, names=("n",), **fields):
    """The warning of a notebook whose parameters arrive as text; empty if there is none."""
    notebook_step = step("typed", *cells, tagged=tagged, kernelspec=PYTHON).model_copy(
        update=fields
    )
    warnings = notebook_warnings(Pipeline.from_steps("p", [notebook_step]), names)
    assert len(warnings) <= 1
    return warnings[0] if warnings else ""


@pytest.mark.parametrize(
    ("tagged", "kind", "conversion"),
    [
        ("n = 3", "int", "n = int(n)"),
        ("n: int = -3", "int", "n = int(n)"),
        ("m, n = 'a', 0.5", "float", "n = float(n)"),
        ("n = True", "bool", 'n = n.lower() == "true"'),
        ("n = [1, 2]", "list", "n = json.loads(n)"),
        ("n = {'a': 1}", "dict", "n = json.loads(n)"),
        ("%matplotlib inline\nn = 3", "int", "n = int(n)"),
    ],
)
def test_a_text_for_a_default_of_another_type_is_reported(tagged, kind, conversion):
    assert type_warning(tagged, "print(n + n)") == (
        "typed.ipynb: parameters arrive as text (str), but the cell tagged parameters has other "
        f"types: n ({kind}); convert them in a later cell, as with {conversion}"
    )


def test_one_warning_lists_all_parameters_of_a_notebook():
    line = type_warning("a = 1\nb = 2.5\nc = 'x'", "1", names=("a", "b", "c", "d"))
    assert ": a (int), b (float); convert" in line


@pytest.mark.parametrize(
    "tagged",
    [
        *("n = '3'", "n = None", "n = f'{1}'", "n = today()", "m = 3", "n = (", ""),
        *("n = 3\nn = '3'", "n = b'3'", "n = ...", "n = 3j", "n = " + "-" * 100_000 + "3"),
    ],
    ids=lambda text: text[:20],
)
def test_a_default_that_is_text_or_no_literal_gives_no_warning(tagged):
    assert type_warning(tagged, "print(n + n)") == ""


@pytest.mark.parametrize(
    "cell",
    [
        "n = int(n)",
        "n = float(n) if n else 0.0",
        "%time x = 1\nparts = range(int(n.strip()))",
        "import json\nn = json.loads(n)",
        "days = n.split(',')",
        "if n == 'yes': pass",
        "n = pd.to_datetime(n)",
        "n = pd.to_timedelta(arg=n)",
        "n = np.int64(n)",
        "n = bool(strtobool(n))",
    ],
)
def test_a_notebook_that_converts_its_parameters_has_no_warning(cell):
    assert type_warning("n = 3", "print(1)", cell) == ""


@pytest.mark.parametrize("deep", ["x" + ".y" * 50_000, "-" * 100_000 + "1", "'\0'"])
def test_cells_that_cannot_be_parsed_hide_no_warning(deep):
    assert "n (int)" in type_warning("n = 3", deep)


def test_the_numbers_of_chunks_arrive_as_text_too():
    assert "chunk_id (int)" in type_warning("chunk_id = 0", "1", names=(), chunks=3)
    assert "item (int)" in type_warning("item = 1990", "1", names=(), foreach=("1991", "1992"))
    assert type_warning("chunk_id = 0", "1", names=()) == ""


@pytest.mark.parametrize(
    "cells", [[{}], [{"source": 3}], [{"source": "a", "metadata": {"tags": 3}}], [3], 3]
)
def test_a_notebook_with_malformed_cells_cannot_be_read(cells):
    Path("odd.ipynb").write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": PYTHON}}))
    with pytest.raises(ValueError, match="cannot be read"):
        notebook_checks.read_declared_parameters(Path("odd.ipynb"))


def test_a_step_loads_no_packages_that_only_papermill_would_use(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    (tmp_path / "packages").mkdir()
    for name in ("boto3", "gcsfs"):
        (tmp_path / "packages" / f"{name}.py").write_text(
            f"from pathlib import Path\nPath(r'{tmp_path}', '{name}.loaded').touch()\n"
            "class GCSFileSystem: pass\n"
        )
    job = run_job(step("one", "import gcsfs\nprint(gcsfs.GCSFileSystem)", kernelspec=PYTHON))
    assert job.status == DONE
    assert [file.name for file in tmp_path.glob("*.loaded")] == ["gcsfs.loaded"]  # by the cell
