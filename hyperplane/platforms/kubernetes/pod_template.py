"""Parse the arguments ``node_selector`` and ``worker_spec_yaml``, a template of worker pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hyperplane.core.errors import Fault, RequestError

#: Limits of a template: its characters, and its levels of nesting.
LARGEST = 2**20
DEEPEST = 32

_PAIR = re.compile(r"\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*=\s*([-A-Za-z0-9_.]*)\s*")
#: Lists whose items have a key: an item of a template replaces ours with the same key.
_KEYED = {
    "env": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "name",
    "imagePullSecrets": "name",
}
_JOINED = ("tolerations", "envFrom")


def parse_selector(selector: Mapping[str, str] | str) -> dict[str, str]:
    """Return the labels of a node selector, a mapping or text such as ``"label=value,..."``.

    Raises
    ------
    ValueError
        If the text has another form.

    Examples
    --------
    >>> parse_selector("disk=ssd, zone=a")
    {'disk': 'ssd', 'zone': 'a'}
    """
    if isinstance(selector, str):
        pairs = [_PAIR.fullmatch(text) for text in selector.split(",")] if selector.strip() else []
        if None in pairs:
            raise ValueError("a mapping of labels, or text such as 'disk=ssd,zone=a'")
        return {pair[1]: pair[2] for pair in pairs if pair}
    return {str(key): str(value) for key, value in selector.items()}


class _Loader(yaml.SafeLoader):
    """YAML loader for plain data; aliases, deep nesting and duplicate keys are errors.

    Aliases are refused because with them a small text can become a huge tree.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"nested deeper than {DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        content = super().construct_mapping(node, deep)
        if len(content) < len(node.value):
            raise yaml.YAMLError(f"duplicate key near line {node.start_mark.line + 1}")
        return content


def read_template(source: str) -> dict[str, Any]:
    """Return ``metadata`` and ``spec`` of a pod template.

    Parameters
    ----------
    source : str
        Path of a YAML file, or its text: a pod, the ``metadata`` and ``spec`` of one, or a ``spec``
        alone.

    Raises
    ------
    RequestError
        If it cannot be read or is not a template of a pod.
    """
    text = source
    try:
        if "\n" not in source and ":" not in source.replace(":\\", ""):
            text = Path(source).expanduser().read_text(encoding="utf-8")
        if len(text) > LARGEST:
            raise ValueError(f"larger than {LARGEST} characters")
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, made narrower
        return _validate_pod(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        allowed = "the path of a YAML file, or its text: a pod, or the spec of one"
        fault = Fault("worker_spec_yaml", _shorten(source), allowed, reason)
        raise RequestError([fault]) from error


def _validate_pod(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("the template is not a mapping")
    if content.get("kind", "Pod") != "Pod":
        raise ValueError(f"it is a {content['kind']}, not a Pod")
    pod = content if "spec" in content else {"spec": content}
    metadata, spec = pod.get("metadata") or {}, pod["spec"]
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ValueError("metadata and spec must be mappings")
    for key in ("labels", "annotations"):
        if not isinstance(metadata.get(key) or {}, dict):
            raise ValueError(f"metadata.{key} must be a mapping")
    containers = spec.get("containers", [{}])
    if not isinstance(containers, list) or not all(isinstance(item, dict) for item in containers):
        raise ValueError("spec.containers must be a list of mappings")
    if not containers:
        raise ValueError("spec.containers is empty; its first container is the worker's")
    containers = [_format_quantities(container) for container in containers]
    return {"metadata": metadata, "spec": {**spec, "containers": containers}}


def _format_quantities(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with its resource amounts as text, which the operator requires."""
    if not isinstance(resources := container.get("resources"), dict):
        return container
    amounts = {
        kind: {name: str(value) for name, value in quantities.items()}
        for kind, quantities in resources.items()
        if isinstance(quantities, dict)
    }
    return {**container, "resources": amounts}


def merge_template(ours: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a worker's pod with the values of a template merged into it.

    The first container of the template is the worker's, but its name, command, cores and memory are
    those of the plan.
    """
    our_container, theirs = ours["containers"][0], dict(template["containers"][0])
    for field in ("args", "command", "name"):
        theirs.pop(field, None)
    container = _overlay(our_container, theirs)
    for kind, amounts in our_container["resources"].items():
        container["resources"][kind] = {**container["resources"][kind], **amounts}
    rest = {
        key: value for key, value in template.items() if key not in ("containers", "restartPolicy")
    }
    pod = _overlay({key: value for key, value in ours.items() if key != "containers"}, rest)
    return {**pod, "containers": [container, *template["containers"][1:]]}


def _overlay(ours: Any, theirs: Any, key: str = "") -> Any:
    """Overlay mappings by key and lists of ``_KEYED`` by item; join lists of ``_JOINED``."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {
            **ours,
            **{k: _overlay(ours[k], v, k) if k in ours else v for k, v in theirs.items()},
        }
    if isinstance(ours, list) and theirs is None:  # a key without a value
        return ours
    if isinstance(ours, list) and isinstance(theirs, list):
        if key in _JOINED:
            return [*ours, *theirs]
        if name := _KEYED.get(key):
            replaced = [item.get(name) for item in theirs if isinstance(item, dict)]
            return [*(item for item in ours if item.get(name) not in replaced), *theirs]
    return theirs


def _shorten(text: str) -> str:
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= 60 else one_line[:57] + "...")
