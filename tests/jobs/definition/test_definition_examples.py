"""Shapes of files in use, and their common mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from hyperplane.jobs.definition.dependencies import waves
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.pipeline_file import PIPELINE_KEYS, read_pipeline
from hyperplane.jobs.definition.schema import DIALECT, json_schema
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.definition.tasks import TASK_KEYS
from scripts import schema

EXAMPLES = Path(__file__).parent / "examples"
GOOD = sorted((EXAMPLES / "good").glob("*.yaml"))
SLIPS = sorted((EXAMPLES / "slips").glob("*.yaml"))


def read(name: str) -> Pipeline:
    return read_pipeline(EXAMPLES / f"{name}.yaml", root=EXAMPLES)


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_a_good_file_is_read_without_a_warning_and_survives_json(file):
    pipeline = read_pipeline(file, root=EXAMPLES)
    assert pipeline.warnings == ()
    assert pipeline.root == str(EXAMPLES)
    assert Pipeline.from_json(pipeline.to_json()) == pipeline
    assert [Step.from_json(step.to_json()) for step in pipeline.steps] == list(pipeline.steps)


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_a_good_file_passes_the_schema(file):
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    jsonschema.validate(content, json_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("file", SLIPS, ids=lambda file: file.stem)
def test_an_editor_with_the_schema_refuses_common_mistakes(file):
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        return
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(content))


def test_the_schema_is_valid_and_its_file_is_up_to_date():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == DIALECT
    # Not as text: pydantic 2.10 writes the limit of a float as 16.0, later versions as 16.
    written = json.loads(schema.FILE.read_text(encoding="utf-8"))
    assert written == json_schema(), "run: python -m scripts.schema"
    assert json.loads(schema.text()) == json_schema()


def test_the_program_of_a_forecast_is_a_file_below_the_root():
    process, cluster = read("good/forecast").steps
    assert process.forecast == "steps/train.py:totals"
    assert cluster.forecast == "steps/train.py:make_totals"


def test_the_schema_has_every_key_with_a_description():
    pipeline = json_schema()["properties"]["pipeline"]["properties"]
    tasks = pipeline.pop("tasks")
    task = tasks["items"]["properties"]
    resources = task["resources"]["properties"]
    assert {*pipeline, "tasks"} == PIPELINE_KEYS.keys()
    assert task.keys() == TASK_KEYS.keys()
    assert resources.keys() == Resources.model_fields.keys()
    for form in (*pipeline.values(), *task.values(), *resources.values()):
        assert form["description"]
        # Keywords of pydantic that no editor knows.
        assert form.keys().isdisjoint({"ge", "gt", "le", "lt", "default", "$ref"})


def test_a_notebook_task_has_a_path_and_an_output_path():
    (step,) = read("good/one_notebook").steps
    assert (step.kind, step.path) == ("notebook", "steps/flights.ipynb")
    assert step.output_path == "out/flights.ipynb"


def test_the_diamond_has_three_waves():
    assert waves(read("good/diamond")) == (("step1",), ("step2", "step3", "step4"), ("step5",))


def test_without_depends_on_steps_run_in_sequence():
    assert waves(read("good/sequence")) == tuple((f"step{n}",) for n in range(1, 6))


def test_steps_with_empty_depends_on_form_one_wave():
    assert waves(read("good/at_once")) == (tuple(f"step{n}" for n in range(1, 6)),)


def test_in_a_mixed_file_a_step_without_depends_on_waits_for_the_previous_one():
    many = read("good/fan_out")
    assert [step.depends_on for step in many.steps] == [(), ("list",), ("list",)]


def test_the_keys_of_a_whole_pipeline_are_read():
    pipeline = read("good/requirements")
    assert pipeline.requirements == "steps/requirements.txt"
    assert pipeline.job_type == "basic"
    training = read("good/training")
    assert (training.working_dir, training.steps[0].working_dir) == ("steps", "steps")
    assert training.steps[0].port == 8787


def test_every_type_has_its_kind():
    kinds = [step.kind for step in read("good/hello").steps]
    assert kinds == ["python", "python", "javascript"]
    assert {step.kind for step in read("good/requirements").steps} == {"notebook"}


def test_text_stays_text_and_numbers_are_numbers():
    listing, years, hundred = read("good/fan_out").steps
    assert listing.argv == ("ls", "-l", "2024", "$(whoami); it's")
    assert years.foreach == ("1990", "no", "1:30", "010", 'a "b"')
    assert years.env == {"YEAR": "1990", "DEBUG": "off", "AT": "1:30"}
    assert (years.timeout, years.retries, years.max_parallel) == (600, 3, 2)
    assert years.resources.model_dump() == {"pool": None, "cores": 2, "ram_gb": 4, "gpus": 1}
    assert years.cluster == {
        "num_workers": 2,
        "nprocs": 1,
        "nthreads": 1,
        "ram_gb_per_proc": 1.5,
        "local_mode": True,
    }
    assert years.secrets == ("DATABASE_URL", "database/password", "service.json")
    assert (years.output, years.more_memory, years.split) == ("s3://bucket/years", 1.5, 4)
    assert (hundred.chunks, hundred.resources.pool, hundred.timeout) == (100, "16_16", 90)


def test_curly_quotes_and_a_key_with_blanks_are_accepted_with_a_warning():
    pipeline = read("slips/quotes")
    assert pipeline.name == "It's curly: quotes"
    assert [step.name for step in pipeline.steps] == [
        "First step",
        "Second step",
        "The “third” step",
    ]
    assert pipeline.steps[0].path == "steps/step1.ipynb"
    assert pipeline.steps[0].output_path == "out/step1.ipynb"
    assert pipeline.steps[1].depends_on == ("First step",)
    curly = [text for text in pipeline.warnings if "curly quotes" in text]
    lines = [int(text.split("line ")[1].split(":")[0]) for text in curly]
    assert lines == [2, 4, 6, 7, 8, 11]
    assert "quotes.yaml line 7: the key 'notebook output path'; write notebook_output_path" in (
        pipeline.warnings
    )


@pytest.mark.parametrize(
    ("name", "keys"),
    [("not_indented", ["name", "requirements", "tasks"]), ("half_indented", ["tasks"])],
)
def test_keys_that_are_not_indented_are_accepted_with_a_warning(name, keys):
    pipeline = read(f"slips/{name}")
    assert pipeline.name == name.replace("_", " ")
    assert pipeline.steps[0].path == "steps/hello.py"
    messages = [text.partition(": ")[2] for text in pipeline.warnings]
    assert messages == [
        f"the key {key} is not indented; indent it under 'pipeline:'" for key in keys
    ]


def test_tabs_are_accepted_with_a_warning():
    pipeline = read("slips/tabs")
    assert [step.path for step in pipeline.steps] == ["steps/sleep1.sh", "steps/sleep2.sh"]
    assert pipeline.warnings == ("tabs.yaml line 2: a tab; indent with spaces, two for each level",)


def test_keys_and_types_in_other_spellings_are_accepted_with_a_warning():
    pipeline = read("slips/spelling")
    assert pipeline.steps[0].kind == "notebook"
    assert pipeline.warnings == (
        "spelling.yaml line 1: the key 'Pipeline'; write pipeline",
        "spelling.yaml line 2: the key 'Name'; write name",
        "spelling.yaml line 5: the type 'Jupyter_Notebook'; write jupyter notebook",
        "spelling.yaml line 6: the key 'notebook-path'; write notebook_path",
        "spelling.yaml line 7: the key 'Depends On'; write depends_on",
    )


def test_a_byte_order_mark_and_the_line_ends_of_windows_are_accepted(tmp_path):
    text = (EXAMPLES / "good" / "service.yaml").read_text(encoding="utf-8")
    file = tmp_path / "service.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    pipeline = read_pipeline(file, root=EXAMPLES)
    assert pipeline.steps == read("good/service").steps
    assert pipeline.warnings == (
        "service.yaml line 1: a byte order mark; save the file as UTF-8 without it",
    )
