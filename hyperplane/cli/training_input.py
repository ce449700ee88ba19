"""``hyperplane train --scale-tier --config``: the cluster of a training job of AI Platform.

The file has the form of ``gcloud ai-platform jobs submit training --config``. All machines of a
custom job that hyperplane creates have one type; what has no counterpart is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyperplane.cli.yaml_file import read_yaml_mapping
from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.yaml_tree import YamlMapping, to_python
from hyperplane.platforms.gcp.ai_platform import (
    BASIC_MACHINE,
    FORMER_MACHINES,
    GONE_MACHINES,
    TIER_ADVICE,
    TIERS,
)

_ALLOWED = "a YAML or JSON file with trainingInput, as for gcloud ai-platform jobs submit training"
#: Prefix of the fields of a role -> argument with its number of machines.
_ROLES = {
    "master": "",
    "worker": "worker_count",
    "parameterServer": "parameter_server_count",
    "evaluator": "evaluator_count",
}
#: Field -> setting of the runner with the same meaning.
_SETTINGS = {"region": "region", "serviceAccount": "service_account", "network": "network"}
_IMAGE_ADVICE = "omit it, and give an image that has the version: --runner-option image=NAME"
#: Fields without a counterpart, and what to do instead.
_REFUSED = {
    "runtimeVersion": _IMAGE_ADVICE,
    "pythonVersion": _IMAGE_ADVICE,
    "packageUris": "omit it, and give --package-path DIR, or an image that has the packages",
    "encryptionConfig": "omit it: objects have the key of their bucket",
    "enableWebAccess": "omit it: containers have no web access",
}
#: Keys of the hyper-parameters.
_TUNING = ("trainingInput", "hyperparameters")
_SECONDS = re.compile(r"([0-9]{1,9})(?:\.[0-9]{1,9})?s")
_MAX_MACHINES = 1000


@dataclass
class TrainingInput:
    """What a file, and the tier, say of a training job.

    Parameters
    ----------
    settings : dict
        Settings of the runner.
    counts : dict of str to int
        Numbers of workers, parameter servers and evaluators; empty if nothing is said.
    arguments : list of str
        Arguments of the program.
    job_dir : str or None
        Value of ``--job-dir``.
    gpus : int
        GPUs of each machine.
    timeout : str or None
        Time limit of the job.
    tuning : dict or None
        Hyper-parameters and their trials.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    job_dir: str | None = None
    gpus: int = 0
    timeout: str | None = None
    tuning: dict[str, Any] | None = None


def read_training_input(
    path: Path | None, scale_tier: str | None, faults: list[Fault]
) -> TrainingInput:
    """Return what a file and the option ``--scale-tier``, which replaces its tier, say."""
    found = TrainingInput()
    tree = YamlMapping(1) if path is None else read_yaml_mapping(path, "--config", _ALLOWED, faults)
    document = _Document(path, tree, faults)
    document.check_fields((), ("trainingInput", "labels"), {"jobId": "omit it: jobs are named"})
    _read_labels(document, found)
    fields = (*_SETTINGS, "scaleTier", "jobDir", "args", "pythonModule", "scheduling")
    roles = [f"{role}{part}" for role in _ROLES for part in ("Type", "Config")]
    counts = [f"{role}Count" for role, name in _ROLES.items() if name]
    known = (*fields, *roles, *counts, "useChiefInTfConfig", _TUNING[-1])
    document.check_fields(("trainingInput",), known, _REFUSED)
    for name, setting in _SETTINGS.items():
        if (text := document.text("trainingInput", name)) is not None:
            found.settings[setting] = text
    found.job_dir = document.text("trainingInput", "jobDir")
    found.arguments = document.texts("trainingInput", "args")
    _read_time_limit(document, found)
    chief = document.text("trainingInput", "useChiefInTfConfig")
    if chief is not None and chief.lower() != "true":
        advice = "read either name in the program, as the primary is called chief"
        document.fault(("trainingInput", "useChiefInTfConfig"), chief, "true", advice)
    _read_machines(document, found, scale_tier)
    _read_tuning(document, found)
    return found


class _Document:
    """Values of a file, and its faults with their lines."""

    def __init__(self, path: Path | None, tree: YamlMapping, faults: list[Fault]) -> None:
        self._path, self._tree, self._faults = path, tree, faults
        self._values = to_python(tree, text=True)

    def fault(self, keys: Sequence[str], asked: str, allowed: str, advice: str = "") -> None:
        """Add the fault of a value."""
        line, node = 0, self._tree
        for key in keys:
            line = node.key_lines.get(key, line)
            inner = node.values.get(key)
            node = inner if isinstance(inner, YamlMapping) else YamlMapping(1)
        is_option = keys[0].startswith("--") or self._path is None
        source = "" if is_option else f"{self._path}:{line}".removesuffix(":0")
        self._faults.append(Fault(".".join(keys), asked, allowed, advice, source))

    def value(self, *keys: str) -> Any:
        """Return the value of some keys; None if there is none."""
        value = self._values
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def typed_value(self, *keys: str) -> Any:
        """Return the value of some keys with numbers and booleans; None if there is none."""
        node: Any = self._tree
        for key in keys:
            node = node.values.get(key) if isinstance(node, YamlMapping) else None
        return None if node is None else to_python(node, text=False)

    def text(self, *keys: str) -> str | None:
        """Return a text; None if there is none, and a fault for another value."""
        value = self.value(*keys)
        if value is not None and not isinstance(value, str):
            self.fault(keys, type(value).__name__, "text")
            return None
        return value

    def texts(self, *keys: str) -> list[str]:
        """Return a list of texts; empty if there is none, and a fault for another value."""
        value = self.value(*keys)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.fault(keys, format_value(value), "a list of texts")
            return []
        return value

    def number(self, *keys: str, least: int = 0) -> int:
        """Return a whole number; the least one if there is none, and a fault for another value."""
        text = self.text(*keys)
        if text is None:
            return least
        if not re.fullmatch("[0-9]{1,4}", text) or not least <= int(text) <= _MAX_MACHINES:
            self.fault(keys, text, f"a whole number from {least} to {_MAX_MACHINES}")
            return least
        return int(text)

    def check_fields(
        self, keys: Sequence[str], known: Sequence[str], refused: Mapping[str, str]
    ) -> None:
        """Add a fault for each field of a mapping that is refused or not known."""
        mapping = self.value(*keys)
        if mapping is None:
            return
        if not isinstance(mapping, dict):
            self.fault(keys, format_value(mapping), "a mapping")
            return
        for name in mapping:
            if name in refused:
                self.fault((*keys, name), "", "no custom job has this field", refused[name])
            elif name not in known:
                advice = suggest_names(name, known)
                self.fault((*keys, name), "", "unknown field", advice)


def _read_labels(document: _Document, found: TrainingInput) -> None:
    labels = document.value("labels")
    if labels is None:
        return
    if not isinstance(labels, dict):
        document.fault(("labels",), format_value(labels), "a mapping of names to texts")
        return
    texts = {name: document.text("labels", name) for name in labels}
    found.settings["labels"] = [f"{name}={text or ''}" for name, text in texts.items()]


def _read_time_limit(document: _Document, found: TrainingInput) -> None:
    keys = ("trainingInput", "scheduling")
    advice = "omit it, and set timeout of the step in a pipeline file"
    document.check_fields(keys, ("maxRunningTime",), {"maxWaitTime": advice, "priority": advice})
    text = document.text(*keys, "maxRunningTime")
    if text is not None:
        if _SECONDS.fullmatch(text):
            found.timeout = text
        else:
            document.fault((*keys, "maxRunningTime"), format_value(text), "seconds, such as 7200s")


def _read_tuning(document: _Document, found: TrainingInput) -> None:
    tuning = document.typed_value(*_TUNING)
    if tuning is None:
        return
    from hyperplane.ml.search.tuning_spec import read_tuning_spec  # few files have it

    try:
        read_tuning_spec({_TUNING[0]: {_TUNING[1]: tuning}})
    except RequestError as error:
        for fault in error.faults:
            keys = fault.where.split(".") if fault.where.startswith(_TUNING[0]) else _TUNING
            document.fault(keys, fault.asked, fault.allowed, fault.advice)
    else:
        found.tuning = tuning


def _read_machines(document: _Document, found: TrainingInput, scale_tier: str | None) -> None:
    """Read the tier, and with CUSTOM the machines of all roles."""
    place = ("trainingInput", "scaleTier") if scale_tier is None else ("--scale-tier",)
    given = scale_tier or document.text("trainingInput", "scaleTier")
    has_machines = any(
        document.value("trainingInput", f"{role}{part}") is not None
        for role in _ROLES
        for part in ("Type", "Count", "Config")
    )
    needs_custom = "CUSTOM, with the machines that the file has"
    if given is None:
        if has_machines:
            document.fault(place, "nothing", needs_custom)
        return
    tier, shown = given.upper().replace("-", "_"), format_value(given)
    if tier not in TIERS:
        document.fault(place, shown, f"one of {', '.join(TIERS)}", suggest_names(tier, TIERS))
    elif tier in TIER_ADVICE:
        document.fault(place, shown, "a tier of Vertex AI: BASIC or CUSTOM", TIER_ADVICE[tier])
    elif tier == "CUSTOM":
        _read_roles(document, found)
    elif has_machines:
        document.fault(place, shown, needs_custom)
    else:
        found.settings["machine_type"] = BASIC_MACHINE


@dataclass(frozen=True)
class _Machine:
    """Machine of a role, with its fields in the file."""

    type: str | None
    gpu_type: str | None
    gpus: int
    image: str | None


def _read_roles(document: _Document, found: TrainingInput) -> None:
    machines: dict[str, _Machine] = {}
    for role, count_name in _ROLES.items():
        count = document.number("trainingInput", f"{role}Count") if count_name else 1
        if count_name:
            found.counts[count_name] = count
        machine = _read_machine(document, role)
        if machine.type is None and count:
            has_type = document.value("trainingInput", f"{role}Type") is not None
            if not has_type:  # else it has a fault already
                allowed = "a machine type, such as n1-standard-8"
                document.fault(("trainingInput", f"{role}Type"), "nothing", allowed)
        if count:
            machines[role] = machine
    master = machines["master"]
    for role, machine in machines.items():
        _compare(document, role, machine, master)
    if master.type is not None:
        found.settings["machine_type"] = master.type
    if master.gpus:
        found.settings["gpu_type"], found.gpus = master.gpu_type, master.gpus
    if master.image is not None:
        found.settings["image"] = master.image


def _read_machine(document: _Document, role: str) -> _Machine:
    keys = ("trainingInput", f"{role}Config")
    advice = "omit it, and give --runner-option disk_gb=SIZE"
    refused = {
        "diskConfig": advice,
        "containerCommand": "omit it: the program is that of --module-name",
        "containerArgs": "omit it, and give the arguments of the program after --",
        "tpuTfVersion": "omit it: machines with TPUs are not supported",
    }
    document.check_fields(keys, ("acceleratorConfig", "imageUri"), refused)
    accelerator = (*keys, "acceleratorConfig")
    document.check_fields(accelerator, ("count", "type"), {})
    gpus = 0
    gpu_type = document.text(*accelerator, "type")
    if document.value(*accelerator) is not None:
        gpus = document.number(*accelerator, "count", least=1)
        if gpu_type is None:
            document.fault((*accelerator, "type"), "nothing", "a type, such as NVIDIA_TESLA_T4")
    type_ = document.text("trainingInput", f"{role}Type")
    if type_ in GONE_MACHINES:
        allowed = "a machine type of Compute Engine that Vertex AI has"
        place = ("trainingInput", f"{role}Type")
        document.fault(place, format_value(type_), allowed, GONE_MACHINES[type_])
        type_ = None
    type_ = FORMER_MACHINES.get(type_ or "", type_)
    return _Machine(type_, gpu_type, gpus, document.text(*keys, "imageUri"))


def _compare(document: _Document, role: str, machine: _Machine, master: _Machine) -> None:
    """Add a fault for each difference from the machine of the master."""
    advice = "all machines of a job are equal: give the one that is enough for each role"
    if None not in (machine.type, master.type) and machine.type != master.type:
        allowed = f"{format_value(master.type)}, the masterType"
        document.fault(
            ("trainingInput", f"{role}Type"), format_value(machine.type), allowed, advice
        )
    if (machine.gpus, machine.gpu_type) != (master.gpus, master.gpu_type):
        gpus = f"{master.gpus} {master.gpu_type}" if master.gpus else "no GPUs"
        asked = f"{machine.gpus} {machine.gpu_type}" if machine.gpus else "nothing"
        accelerator = ("trainingInput", f"{role}Config", "acceleratorConfig")
        document.fault(accelerator, asked, f"{gpus}, as masterConfig has", advice)
    if machine.image not in (None, master.image):
        image = ("trainingInput", f"{role}Config", "imageUri")
        allowed = f"{format_value(master.image)}, as masterConfig has"
        document.fault(image, format_value(machine.image), allowed, advice)
