"""What a call may say of pods: a node selector, and a template of a worker's pod."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hyperplane.errors import Fault, RequestError

LARGEST = 2**20
DEEPEST = 32

_PAIR = re.compile(r"\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*=\s*([-A-Za-z0-9_.]*)\s*")
#: Lists of a pod or container whose items have a key: a template's item replaces ours, others join.
_KEYED = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "name",
    "imagePullSecrets": "name",
}
_JOINED = ("tolerations", "envFrom")


def parse_selector(asked: Mapping[str, str] | str) -> dict[str, str]:
    """Labels that a node must have.

    Parameters
    ----------
    asked : mapping or str
        Label to value, or text ``"label=value,label=value"``; empty for any node.

    Raises
    ------
    ValueError
        When the text is something else.

    Examples
    --------
    >>> selector("disk=ssd, zone=a")
    {'disk': 'ssd', 'zone': 'a'}
    """
    if isinstance(asked, str):
        pairs = [_PAIR.fullmatch(one) for one in asked.split(",")] if asked.strip() else []
        if None in pairs:
            raise ValueError("a mapping of labels, or text such as 'disk=ssd,zone=a'")
        return {pair[1]: pair[2] for pair in pairs if pair}
    return {str(key): str(value) for key, value in asked.items()}


class _Loader(yaml.SafeLoader):
    """Plain data only: no aliases, which make a small text a huge tree, and no key twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read here")
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"nested deeper than {DEEPEST} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        content = super().construct_mapping(node, deep)
        if len(content) < len(node.value):
            raise yaml.YAMLError(f"a key stands twice near line {node.start_mark.line + 1}")
        return content


def read_template(given: str) -> dict[str, Any]:
    """A template of a pod.

    Parameters
    ----------
    given : str
        Path of a YAML file, or its text: a pod, or the ``metadata`` and ``spec`` of one, or the
        ``spec`` alone.

    Returns
    -------
    dict
        With ``metadata`` and ``spec``.

    Raises
    ------
    RequestError
        When it cannot be read as one.
    """
    text = given
    try:
        if "\n" not in given and ":" not in given.replace(":\\", ""):
            text = Path(given).expanduser().read_text(encoding="utf-8")
        if len(text) > LARGEST:
            raise ValueError(f"larger than {LARGEST} characters")
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, made narrower
        return _pod(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        allowed = "a path or the text of a pod in YAML, with spec.containers"
        raise RequestError([Fault("worker_spec_yaml", _short(given), allowed, reason)]) from error


def _pod(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("it is not a mapping")
    if content.get("kind", "Pod") != "Pod":
        raise ValueError(f"it is a {content['kind']}, not a Pod")
    pod = content if "spec" in content else {"spec": content}
    metadata, spec = pod.get("metadata") or {}, pod["spec"]
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ValueError("metadata and spec are mappings")
    containers = spec.get("containers", [{}])
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        raise ValueError("spec.containers is a list of mappings")
    if not containers:
        raise ValueError("spec.containers has none; the first is the worker's")
    containers = [_with_quantities(one) for one in containers]
    return {"metadata": metadata, "spec": {**spec, "containers": containers}}


def _with_quantities(container: dict[str, Any]) -> dict[str, Any]:
    """A container with its amounts as texts, as the operator wants them."""
    if not isinstance(resources := container.get("resources"), dict):
        return container
    amounts = {
        kind: {name: str(value) for name, value in given.items()}
        for kind, given in resources.items()
        if isinstance(given, dict)
    }
    return {**container, "resources": amounts}


def merge_template(ours: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Our spec of a worker's pod with what a template says otherwise.

    What the plan decides stays: the command of the first container and its cores and memory.

    Parameters
    ----------
    ours, template : dict
        Specs of pods. The first container of a template is the worker's.

    Returns
    -------
    dict
    """
    our_container, theirs = ours["containers"][0], dict(template["containers"][0])
    for decided in ("args", "command", "name"):
        theirs.pop(decided, None)
    container = _overlay(our_container, theirs)
    for kind, amounts in our_container["resources"].items():
        container["resources"][kind] = {**container["resources"][kind], **amounts}
    rest = {
        key: value for key, value in template.items() if key not in ("containers", "restartPolicy")
    }
    pod = _overlay({key: value for key, value in ours.items() if key != "containers"}, rest)
    return {**pod, "containers": [container, *template["containers"][1:]]}


def _overlay(ours: Any, theirs: Any, key: str = "") -> Any:
    """Theirs over ours: mappings key by key, lists with keys item by item."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {
            **ours,
            **{k: _overlay(ours[k], v, k) if k in ours else v for k, v in theirs.items()},
        }
    if isinstance(ours, list) and isinstance(theirs, list):
        if key in _JOINED:
            return [*ours, *theirs]
        if name := _KEYED.get(key):
            given = [one.get(name) for one in theirs if isinstance(one, dict)]
            return [*(one for one in ours if one.get(name) not in given), *theirs]
    return theirs


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= 60 else one_line[:57] + "...")
