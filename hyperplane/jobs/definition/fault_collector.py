"""What is found while a file is read: faults and warnings, each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hyperplane.errors import Fault, check
from hyperplane.jobs.definition.lenient_yaml import normalize_key
from hyperplane.jobs.definition.wording import format_value, suggest_names
from hyperplane.jobs.definition.yaml_text import YamlList, YamlMapping, YamlNode

#: Faults for which near names are looked up: a hostile file must not keep a processor busy.
_MAX_SUGGESTIONS = 50
#: Characters of a path of keys that a message has as they are.
_MAX_PATH_LENGTH = 120


class FaultCollector:
    """Collects what is wrong with one file.

    Parameters
    ----------
    name : str
        Name of the file, which each fault and warning begins with.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._faults: list[tuple[int, Fault]] = []
        self._warnings: list[tuple[int, str]] = []

    def add_fault(self, line: int, where: str, asked: str, allowed: str, advice: str = "") -> None:
        """Add a fault; line 0 is the whole file."""
        at = f"{self._name} line {line}" if line else self._name
        # A key may be anything; a message is for a terminal.
        visible = (
            where if where.isprintable() and len(where) <= _MAX_PATH_LENGTH else format_value(where)
        )
        place = f"{at}: {visible}" if where else at
        self._faults.append((line, Fault(place, asked, allowed, advice)))

    def add_warning(self, line: int, text: str) -> None:
        """Add a warning; line 0 is the whole file."""
        at = f"{self._name} line {line}" if line else self._name
        self._warnings.append((line, f"{at}: {text}"))

    def check(self) -> None:
        """Raise one RequestError with all faults in the order of their lines, if any."""
        check(fault for _, fault in sorted(self._faults, key=lambda one: one[0]))

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings in the order of their lines."""
        return tuple(text for _, text in sorted(self._warnings, key=lambda one: one[0]))

    def suggest(self, name: str, known: Iterable[str]) -> str:
        """A question that names what somebody may have meant."""
        return suggest_names(name, known) if len(self._faults) < _MAX_SUGGESTIONS else ""


class MappingEntries:
    """The known keys of a mapping, with their lines.

    Parameters
    ----------
    pairs : Pairs
        The mapping. Keys that differ from a known one in blanks, dashes or capitals are read with
        a warning; unknown ones and those that are then there twice are faults.
    known : collection of str
        The keys that may be there.
    where : str
        Path of the mapping; empty for the top of the file.
    collector : Report
        What is wrong is added to it.
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
                advice = collector.suggest(key, known)
                collector.add_fault(line, place, "a key", "no such key", advice)
            elif key in self.nodes:
                asked = f"again, first in line {self.lines[key]}"
                collector.add_fault(line, place, asked, "each key once")
            else:
                if key != written:
                    collector.add_warning(line, f"the key {format_value(written)}; write {key}")
                self.nodes[key], self.lines[key] = node, line

    def line_of(self, key: str, rest: Iterable[str] = ()) -> int:
        """The line of what stands at a path below a key, or of the nearest thing above it."""
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
