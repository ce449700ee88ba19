"""Collect faults and warnings of a pipeline file, each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import unknown_name
from hyperplane.jobs.definition.lenient_yaml import normalize_key
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.validated_record import to_key_fault
from hyperplane.jobs.definition.yaml_tree import YamlList, YamlMapping, YamlNode, to_python

#: Maximum faults that list known keys and similar names: a malicious file must not keep a processor
#: busy.
_MAX_SUGGESTIONS = 50
#: Maximum length of a path of keys that a message shows unchanged.
_MAX_PATH_LENGTH = 120


class FaultCollector:
    """Faults and warnings of one file; ``name`` is the file name that each begins with."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._faults: list[tuple[int, Fault]] = []
        self._warnings: list[tuple[int, str]] = []

    def add_fault(self, line: int, where: str, asked: str, allowed: str, advice: str = "") -> None:
        """Add a fault of these parts, as :meth:`add` does."""
        self.add(line, Fault(where, asked, allowed, advice))

    def add(self, line: int, fault: Fault) -> None:
        """Add a fault whose ``where`` is a path in the file; line 0 means the whole file."""
        at, where = f"{self._name} line {line}" if line else self._name, fault.where
        # Keys may contain any characters, but messages are shown in terminals.
        visible = (
            where if where.isprintable() and len(where) <= _MAX_PATH_LENGTH else format_value(where)
        )
        place = f"{at}: {visible}" if where else at
        self._faults.append((line, replace(fault, where=place)))

    def add_unknown_key(
        self, line: int, where: str, key: str, node: YamlNode, known: Iterable[str]
    ) -> None:
        """Add the fault of a key that is not one of the known keys of its mapping."""
        if len(self._faults) < _MAX_SUGGESTIONS:
            fault = to_key_fault(unknown_name(key, to_python(node, text=False), known, ""))
            self.add(line, replace(fault, where=where))
        else:
            self.add_fault(line, where, "", "no such key")

    def add_warning(self, line: int, text: str) -> None:
        """Add a warning; line 0 means the whole file."""
        at = f"{self._name} line {line}" if line else self._name
        self._warnings.append((line, f"{at}: {text}"))

    def check(self) -> None:
        """Raise a RequestError with all faults in order of their lines, if there are any."""
        check(fault for _, fault in sorted(self._faults, key=lambda entry: entry[0]))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings in order of their lines."""
        return tuple(text for _, text in sorted(self._warnings, key=lambda entry: entry[0]))

    def suggest(self, name: str, known: Iterable[str]) -> str:
        """Return a question that suggests similar known names."""
        return suggest_names(name, known) if len(self._faults) < _MAX_SUGGESTIONS else ""


class MappingEntries:
    """Entries of a YAML mapping by known key, with their lines.

    Parameters
    ----------
    pairs : YamlMapping
        The mapping. Keys that differ from a known one only in blanks, dashes or case are accepted
        with a warning; unknown and duplicate keys are faults.
    known : mapping
        The known keys.
    where : str
        Path of the mapping; empty for the top of the file.
    collector : FaultCollector
        Receives faults and warnings.
    """

    def __init__(
        self, pairs: YamlMapping, known: Mapping[str, str], where: str, collector: FaultCollector
    ) -> None:
        self.line = pairs.line
        self.nodes: dict[str, YamlNode] = {}
        self.lines: dict[str, int] = {}
        for written, node in pairs.values.items():
            key, line = normalize_key(written), pairs.key_lines[written]
            place = f"{where}.{written}" if where else written
            if key not in known:
                collector.add_unknown_key(line, place, key, node, known)
            elif key in self.nodes:
                repeated = f"repeated; first in line {self.lines[key]}"
                collector.add_fault(line, place, "", repeated)
            else:
                if key != written:
                    collector.add_warning(line, f"the key {format_value(written)}; write {key}")
                self.nodes[key], self.lines[key] = node, line

    def line_of(self, key: str, rest: Iterable[str] = ()) -> int:
        """Return the line of a path below a key, or of its nearest existing parent."""
        line = self.lines.get(key, self.line)
        node = self.nodes.get(key)
        for part in rest:
            if isinstance(node, YamlList) and part.isdecimal() and int(part) < len(node.items):
                node = node.items[int(part)]
                line = node.line
            elif isinstance(node, YamlMapping) and part in node.values:
                line, node = node.key_lines[part], node.values[part]
            else:
                break
        return line
