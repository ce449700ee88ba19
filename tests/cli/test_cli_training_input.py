"""``hyperplane train --scale-tier --config``: files of gcloud ai-platform jobs submit training."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Run

from hyperplane.cli.training_input import TrainingInput, read_training_input
from hyperplane.core.errors import Fault

CONFIG = """\
labels: {team: flights}
trainingInput:
  scaleTier: CUSTOM
  masterType: large_model
  masterConfig:
    imageUri: registry.example/flights:1
    acceleratorConfig: {count: 2, type: NVIDIA_TESLA_T4}
  workerType: n1-highmem-8
  workerConfig:
    acceleratorConfig: {count: "2", type: NVIDIA_TESLA_T4}
  workerCount: 9
  parameterServerCount: 0
  region: europe-west4
  serviceAccount: steps@flights-test.iam.gserviceaccount.com
  jobDir: gs://flights/fit
  args: [--steps, '7']
  scheduling: {maxRunningTime: 7200s}
  useChiefInTfConfig: true
"""


def read(folder: Path, text: str, tier: str | None = None) -> tuple[TrainingInput, list[str]]:
    file = folder / "config.yaml"
    file.write_text(text)
    faults: list[Fault] = []
    found = read_training_input(file, tier, faults)
    return found, [str(fault).replace(f"{file}:", "") for fault in faults]


def test_a_file_of_gcloud_has_the_machines_and_arguments_of_the_job(tmp_path: Path) -> None:
    found, faults = read(tmp_path, CONFIG)
    assert faults == []
    assert found.settings == {
        "labels": ["team=flights"], "region": "europe-west4",
        "service_account": "steps@flights-test.iam.gserviceaccount.com",
        "machine_type": "n1-highmem-8", "gpu_type": "NVIDIA_TESLA_T4",
        "image": "registry.example/flights:1",
    }  # fmt: skip
    assert found.counts == {"worker_count": 9, "parameter_server_count": 0, "evaluator_count": 0}
    assert (found.arguments, found.job_dir) == (["--steps", "7"], "gs://flights/fit")
    assert (found.gpus, found.timeout) == (2, "7200s")


@pytest.mark.parametrize("tier", ["basic", "BASIC"])
def test_the_tier_basic_is_one_machine(tmp_path: Path, tier: str) -> None:
    assert read(tmp_path, f"trainingInput: {{scaleTier: {tier}}}")[0].settings == {
        "machine_type": "n1-standard-4"
    }
    faults: list[Fault] = []
    found = read_training_input(None, tier, faults)
    assert (faults, found.settings) == ([], {"machine_type": "n1-standard-4"})
    assert found.counts == {}


def test_the_option_replaces_the_tier_of_the_file(tmp_path: Path) -> None:
    text = "trainingInput: {scaleTier: PREMIUM_1, masterType: n1-standard-8}"
    found, faults = read(tmp_path, text, "custom")
    assert (faults, found.settings) == ([], {"machine_type": "n1-standard-8"})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("scaleTier: STANDARD_1", "3: trainingInput.scaleTier = 'STANDARD_1': expected a tier of "
         "Vertex AI: BASIC or CUSTOM; give scaleTier: CUSTOM with masterType, workerType"),
        ("scaleTier: BASIC_GPU", "{acceleratorConfig: {count: 1, type: NVIDIA_TESLA_T4}}"),
        ("scaleTier: CUSTOMS", "BASIC_GPU, BASIC_TPU, CUSTOM; did you mean CUSTOM?"),
        ("scaleTier: CUSTOM", "trainingInput.masterType is not set; expected a machine type"),
        ("masterType: n1-standard-8", "trainingInput.scaleTier is not set; expected CUSTOM, with"),
        ("scaleTier: BASIC\n  workerCount: 2", "scaleTier = 'BASIC': expected CUSTOM, with the"),
        ("scaleTier: CUSTOM\n  masterType: standard\n  workerType: n1-standard-8\n  workerCount: 1",
         "5: trainingInput.workerType = 'n1-standard-8': expected 'n1-standard-4', the masterType; "
         "all machines of a job are equal"),
        ("scaleTier: CUSTOM\n  masterType: standard\n  workerCount: 1",
         "trainingInput.workerType is not set"),
        ("scaleTier: CUSTOM\n  masterType: complex_model_m_gpu",
         "4: trainingInput.masterType = 'complex_model_m_gpu': expected a machine type of Compute"),
        ("scaleTier: CUSTOM\n  masterType: n1-standard-8\n  workerType: n1-standard-8\n"
         "  workerCount: 1\n  masterConfig: {acceleratorConfig: {count: 1, type: NVIDIA_TESLA_T4}}",
         "trainingInput.workerConfig.acceleratorConfig is not set; expected 1 NVIDIA_TESLA_T4"),
        ("scaleTier: CUSTOM\n  masterType: n1-standard-8\n  masterConfig: {imageUri: a}\n"
         "  workerType: n1-standard-8\n  workerCount: 1\n  workerConfig: {imageUri: b}",
         "8: trainingInput.workerConfig.imageUri = 'b': expected 'a', as masterConfig has"),
        ("scaleTier: CUSTOM\n  masterType: n1-standard-8\n  workerCount: many",
         "5: trainingInput.workerCount = many: expected a whole number from 0 to 1000"),
        ("runtimeVersion: '2.11'", "3: trainingInput.runtimeVersion: no custom job has this field; "
         "omit it, and give an image"),
        ("hyperparameters: {goal: MAXIMIZE}", "3: trainingInput.hyperparameters.params"),
        ("hyperparameters: {params: []}", "trainingInput.hyperparameters.params = []"),
        ("workerCounts: 2", "trainingInput.workerCounts: unknown field; did you mean workerCount"),
        ("scheduling: {maxRunningTime: 2h}", "expected seconds, such as 7200s"),
        ("args: --steps", "trainingInput.args = '--steps': expected a list of texts"),
        ("useChiefInTfConfig: false", "expected true"),
        ("region: [a]", "trainingInput.region = list: expected text"),
    ],
)  # fmt: skip
def test_a_value_without_a_counterpart_is_a_fault_with_what_to_give(
    tmp_path: Path, text: str, fault: str
) -> None:
    _, faults = read(tmp_path, f"labels: {{}}\ntrainingInput:\n  {text}\n")
    assert len(faults) == 1, faults
    assert fault in faults[0]


def test_faults_of_the_file_and_of_the_command_are_reported_together(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--module-name", "trainer.task", "--config", "config.yaml"]
    for runner in ([], ["--runner", "slurm"]):
        answer = run(*words, "--scale-tier", "BASIC", *runner)
        assert answer.code == 2
        assert answer.err.count("only with --runner vertex") == 2
    Path("config.yaml").write_text("trainingInput: [\n")
    answer = run(*words, "--runner", "vertex", "--start-port", "5")
    assert (answer.code, "2 faults" in answer.err) == (2, True)
    assert "config.yaml:" in answer.err
    Path("config.yaml").write_text("trainingInputs: {}\njobId: one\n")
    answer = run(*words, "--runner", "vertex", "--scale-tier", "STANDARD_1")
    message = " ".join(answer.err.split())
    assert "config.yaml:1: trainingInputs: unknown field; did you mean trainingInput?" in message
    assert "config.yaml:2: jobId: no custom job has this field; omit it" in message
    assert "--scale-tier = 'STANDARD_1': expected a tier of Vertex AI" in message
