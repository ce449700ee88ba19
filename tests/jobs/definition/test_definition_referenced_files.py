"""Location and checks of a pipeline's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyperplane.errors import RequestError
from hyperplane.jobs.definition import credential_detection
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.pipeline_file import read_pipeline
from hyperplane.jobs.definition.referenced_files import find_files
from hyperplane.jobs.definition.step import Step

#: Assembled here, so that no scanner reports this file as a leak.
SECRETS = {
    "an AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE",
    "a GitHub token": "ghp_" + "0aA" * 12,
    "a Slack token": "xoxb-" + "123456789012-abcdef",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository with a folder of pipelines, and a current folder elsewhere."""
    top = tmp_path / "repository"
    (top / ".git").mkdir(parents=True)
    (top / "jobs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return top


def pipeline_file(folder: Path, path: str, more: str = "") -> Path:
    file = folder / "p.yaml"
    file.write_text(
        "pipeline:\n  name: p\n  tasks:\n"
        f"  - {{name: a, type: bash, bash_script_path: {path}{more}}}\n"
    )
    return file


def refused(file: Path, **options: object) -> str:
    with pytest.raises(RequestError) as caught:
        read_pipeline(file, **options)
    return str(caught.value)


def test_paths_are_relative_to_the_repository(repository):
    for folder in (repository, repository / "jobs"):
        (folder / "a.sh").touch()
    pipeline = read_pipeline(pipeline_file(repository / "jobs", "a.sh"))
    assert (pipeline.root, pipeline.warnings) == (str(repository), ())


@pytest.mark.parametrize("folder", ["repository/jobs", "elsewhere"])
def test_paths_are_relative_to_another_folder_that_has_more_files(repository, folder):
    other = repository.parent / folder
    (other / "a.sh").touch()
    pipeline = read_pipeline(pipeline_file(repository / "jobs", "a.sh"))
    assert pipeline.root == str(other)
    (warning,) = pipeline.warnings
    assert warning.startswith(f"p.yaml: paths are relative to {other}, which has more of the files")


def test_without_a_repository_paths_are_relative_to_the_pipeline_file(tmp_path):
    (tmp_path / "a.sh").touch()
    pipeline = read_pipeline(pipeline_file(tmp_path, "./a.sh"))
    assert (pipeline.root, pipeline.warnings) == (str(tmp_path), ())
    assert pipeline.steps[0].path == "a.sh"


def test_a_given_root_is_the_only_candidate(repository):
    (repository / "a.sh").touch()
    file = pipeline_file(repository / "jobs", "a.sh")
    assert read_pipeline(file, root=repository).root == str(repository)
    assert "an existing file in" in refused(file, root=repository / "jobs")
    assert "root = " in refused(file, root=repository / "gone")


@pytest.mark.parametrize("root", ["gone", "\ud800", "x" * 5000])
def test_a_root_that_is_no_folder_is_the_only_fault_of_paths(repository, root):
    notebook = {"name": "a", "kind": "notebook", "path": "n.ipynb", "output_path": "o.ipynb"}
    found = find_files([notebook], {"requirements": "r.txt"}, root, repository)
    assert [fault.where for fault in found.faults] == ["root"]


def test_an_absolute_path_inside_the_root_is_made_relative(repository):
    (repository / "a.sh").touch()
    pipeline = read_pipeline(pipeline_file(repository, str(repository / "a.sh")))
    assert pipeline.steps[0].path == "a.sh"


def test_a_link_to_a_file_inside_the_root_is_accepted(repository):
    (repository / "a.sh").touch()
    (repository / "link.sh").symlink_to("a.sh")
    assert read_pipeline(pipeline_file(repository, "link.sh")).steps[0].path == "link.sh"


@pytest.mark.parametrize(
    "path",
    ["../secret.sh", "jobs/../../secret.sh", "/etc/passwd", "link.sh", "out/secret.sh", "/", ".."],
)
def test_paths_that_lead_out_of_the_root_are_refused(repository, path):
    outside = repository.parent / "secret.sh"
    outside.touch()
    (repository / "link.sh").symlink_to(outside)
    (repository / "out").symlink_to(repository.parent)
    file = pipeline_file(repository, path)
    assert f"= {path!r}: expected a path inside {repository}" in refused(file)


@pytest.mark.parametrize("path", ["jobs", "gone/a.sh", "b.sh", "loop", "x" * 5000])
def test_paths_that_are_not_existing_files_are_refused(repository, path):
    (repository / "loop").symlink_to("loop")
    assert "an existing file" in refused(pipeline_file(repository, path))


def test_the_output_of_a_notebook_must_be_a_file_inside_the_root(repository):
    (repository / "n.ipynb").write_text('{"cells": []}')
    for output, expected in {"../o.ipynb": "a path inside", "jobs": "a file, not a folder"}.items():
        step = Step(name="a", kind="notebook", path="n.ipynb", output_path=output)
        with pytest.raises(RequestError, match=expected):
            Pipeline.from_steps("p", [step], root=repository)


def notebook_step(name: str, output: str, **options: object) -> Step:
    return Step(
        name=name, kind="notebook", path="n.ipynb", output_path=output, depends_on=(), **options
    )


def test_the_output_of_a_notebook_must_not_replace_it(repository):
    (repository / "n.ipynb").write_text('{"cells": []}')
    (repository / "file").touch()
    (repository / "link.ipynb").symlink_to("n.ipynb")
    faults = {
        "n.ipynb": "another file than the notebook, which the executed copy would replace",
        "./jobs/../n.ipynb": "another file than the notebook",
        "link.ipynb": "another file than the notebook",
        "file/o.ipynb": "a path in a folder; file is a file",
        "file/a/o.ipynb": "a path in a folder; file is a file",
    }
    for output, expected in faults.items():
        with pytest.raises(RequestError, match=expected):
            Pipeline.from_steps("p", [notebook_step("a", output)], root=repository)
    # Each chunk writes a file with its number.
    chunks = Pipeline.from_steps("p", [notebook_step("a", "n.ipynb", chunks=2)], root=repository)
    assert chunks.warnings == ()


def test_the_output_of_a_notebook_must_not_replace_another_file_of_the_pipeline(repository):
    for name in ("n.ipynb", "other.ipynb", "n-00001.ipynb"):
        (repository / name).write_text('{"cells": []}')
    (repository / "r.txt").write_text("dask")
    (repository / "hard.ipynb").hardlink_to(repository / "n.ipynb")
    other = Step(name="other", kind="notebook", path="other.ipynb", depends_on=())
    number = Step(name="number", kind="notebook", path="n-00001.ipynb", depends_on=())
    replaced = {
        "other.ipynb": (1, {}),
        "r.txt": (1, {}),
        "hard.ipynb": (1, {}),
        "n.ipynb": (1, {"chunks": 2}),  # n-00001.ipynb
    }
    for output, (count, options) in replaced.items():
        steps = [notebook_step("a", output, **options), other, number]
        with pytest.raises(RequestError, match="which the executed copy would replace") as caught:
            Pipeline.from_steps("p", steps, root=repository, requirements="r.txt")
        assert len(caught.value.faults) == count
    one = notebook_step("a", "n.ipynb", chunks=1)  # writes n-00000.ipynb only
    assert Pipeline.from_steps("p", [one, other, number], root=repository).warnings == ()


def test_a_step_that_writes_the_notebook_of_a_chunk_of_another_is_a_warning(repository):
    (repository / "n.ipynb").write_text('{"cells": []}')
    chunks, one = notebook_step("a", "o.ipynb", chunks=3), notebook_step("b", "o-00002.ipynb")
    assert Pipeline.from_steps("p", [chunks, one], root=repository).warnings == (
        "the steps 'a', 'b' write the same executed notebook, o-00002.ipynb; the one that ends "
        "last replaces the others",
    )
    later = notebook_step("b", "o-00003.ipynb")
    assert Pipeline.from_steps("p", [chunks, later], root=repository).warnings == ()


def test_steps_that_write_the_same_notebook_are_a_warning(repository):
    (repository / "n.ipynb").write_text('{"cells": []}')
    outputs = {"a": "out/o.ipynb", "b": "out/./o.ipynb", "c": "out/c.ipynb"}
    steps = [notebook_step(name, output) for name, output in outputs.items()]
    assert Pipeline.from_steps("p", steps, root=repository).warnings == (
        "the steps 'a', 'b' write the same executed notebook, out/o.ipynb; the one that ends last "
        "replaces the others",
    )


def test_a_folder_is_not_suggested_for_an_output(repository):
    (repository / "n.ipynb").write_text('{"cells": []}')
    with pytest.raises(RequestError) as caught:
        Pipeline.from_steps("p", [notebook_step("a", "jobs")], root=repository)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(("suffix", "kind"), [("sh", "bash"), ("py", "python")])
def test_a_script_is_a_pipeline_of_one_step(repository, suffix, kind):
    file = repository / "jobs" / f"clean up.{suffix}"
    file.touch()
    pipeline = read_pipeline(file)
    (step,) = pipeline.steps
    assert (pipeline.name, step.name, step.kind) == ("clean up", "clean up", kind)
    assert (pipeline.root, step.path) == (str(repository), f"jobs/clean up.{suffix}")


def test_a_notebook_is_a_pipeline_of_one_step(repository):
    file = repository / "n.ipynb"
    file.write_text(json.dumps({"cells": [{"source": "1"}]}))
    assert read_pipeline(file).steps[0].kind == "notebook"
    file.write_text("no notebook")
    assert "path = 'n.ipynb': expected a notebook" in refused(file)


@pytest.mark.parametrize("name", ["p.txt", "p", "gone.yaml", "folder.yaml", "x" * 5000 + ".yaml"])
def test_missing_files_and_other_suffixes_are_refused(tmp_path, name):
    (tmp_path / "p.txt").touch()
    (tmp_path / "folder.yaml").mkdir()
    assert "path = " in refused(tmp_path / name)


@pytest.mark.parametrize("kind", SECRETS)
def test_credentials_in_a_notebook_are_reported_and_never_shown(repository, kind):
    secret = SECRETS[kind]
    cells = [
        {"source": ["x = 1\n"]},
        {"source": ["x = 2\n", f"token = '{secret}'"]},
        {"source": "print(token)", "outputs": [{"text": [secret]}]},
    ]
    (repository / "n.ipynb").write_text(json.dumps({"cells": cells}))
    step = Step(name="a", kind="notebook", path="n.ipynb")
    warnings = Pipeline.from_steps("p", [step], root=repository).warnings
    assert [text.partition(";")[0] for text in warnings] == [
        f"n.ipynb, cell 2: looks like {kind}",
        f"n.ipynb, the output of cell 3: looks like {kind}",
    ]
    assert not any(secret.splitlines()[0] in text for text in warnings)


def test_credentials_in_variables_and_arguments_are_reported_and_never_shown(repository):
    secret = SECRETS["a GitHub token"]
    step = Step(name="a", kind="command", argv=("curl", secret), env={"TOKEN": secret})
    warnings = Pipeline.from_steps("p", [step], root=repository).warnings
    assert [text.partition(":")[0] for text in warnings] == [
        "env.TOKEN of step 'a'",
        "command of step 'a'",
    ]
    assert not any(secret in text for text in warnings)


def test_plain_code_is_no_credential():
    assert not any(
        map(
            credential_detection.detect_credential, ["AKIA", "ghp_short", "xoxb-1", "import os", ""]
        )
    )
