"""Checks of nested fields: Choices, Retry, Catch, templates, ItemReader and ItemBatcher."""

from __future__ import annotations

from typing import Any

from hyperplane.asl import fields
from hyperplane.asl.field_types import PATH, TEXT
from hyperplane.asl.json_parser import JsonLocation
from hyperplane.asl.payload_templates import find_template_errors
from hyperplane.asl.problems import ProblemCollector, format_value

ALL = "States.ALL"


def check_rules(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    """Check the ``Choices`` of a Choice state."""
    for inside, rule in collector.read_objects(value, location):
        _rule(collector, rule, inside, top=True)


def _rule(
    collector: ProblemCollector, rule: dict[str, Any], location: JsonLocation, *, top: bool
) -> None:
    known: fields.Fields = {"Comment": TEXT}
    if top:
        known["Next"] = TEXT
        collector.check_required(rule, location, ["Next"])
    connectives = [name for name in fields.CONNECTIVES if name in rule]
    if connectives and "Variable" not in rule:
        collector.check_fields(
            rule, location, {**known, **dict.fromkeys(connectives, fields.NESTED)}
        )
        collector.check_at_most_one(rule, location, fields.CONNECTIVES)
        for name in connectives:
            _connective(collector, rule[name], (*location, name))
        return
    known |= {"Variable": PATH, **fields.COMPARATORS}
    collector.check_fields(rule, location, known)
    collector.check_required(rule, location, ["Variable"])
    comparators = [name for name in rule if name in fields.COMPARATORS]
    if len(comparators) != 1:
        asked = " and ".join(comparators) or "no comparison"
        collector.add(location, asked, "one comparison, such as StringEquals or IsPresent")


def _connective(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    if location[-1] == "Not":
        if collector.check_object(value, location):
            _rule(collector, value, location, top=False)
        return
    for inside, rule in collector.read_objects(value, location):
        _rule(collector, rule, inside, top=False)


def check_clauses(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    """Check a ``Retry`` or a ``Catch``."""
    if value == []:  # allowed; has no effect
        return
    clauses = collector.read_objects(value, location)
    catching = location[-1] == "Catch"
    for inside, clause in clauses:
        collector.check_fields(clause, inside, fields.CATCHER if catching else fields.RETRIER)
        collector.check_required(clause, inside, ["ErrorEquals", *(["Next"] if catching else [])])
        if "ErrorEquals" in clause:
            last = inside[-1] == len(value) - 1
            _errors(collector, clause["ErrorEquals"], (*inside, "ErrorEquals"), last)


def _errors(collector: ProblemCollector, names: Any, location: JsonLocation, last: bool) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        collector.add(location, format_value(names), "a list of at least one error name")
    elif ALL in names and (len(names) > 1 or not last):
        collector.add(location, format_value(names), f"{ALL} alone, in the last entry")


def check_template(collector: ProblemCollector, value: Any, location: JsonLocation) -> None:
    """Check a payload template."""
    if not collector.check_object(value, location):
        return
    for inside, asked, why in find_template_errors(value):
        collector.add(
            (*location, *inside), format_value(asked), "a path or an intrinsic function", why
        )


def check_reader(collector: ProblemCollector, reader: Any, location: JsonLocation) -> None:
    """Check the ``ItemReader`` of a Map."""
    if not collector.check_object(reader, location):
        return
    collector.check_fields(reader, location, fields.READER)
    collector.check_required(reader, location, ["Resource"])
    if "Parameters" in reader:
        check_template(collector, reader["Parameters"], (*location, "Parameters"))
    config = reader.get("ReaderConfig", {})
    inside = (*location, "ReaderConfig")
    if not isinstance(config, dict):
        return
    collector.check_fields(config, inside, fields.READER_CONFIG)
    collector.check_at_most_one(config, inside, ("MaxItems", "MaxItemsPath"))
    _headers(collector, config, inside)


def _headers(collector: ProblemCollector, config: dict[str, Any], location: JsonLocation) -> None:
    if config.get("InputType") != "CSV":
        for name in ("CSVHeaderLocation", "CSVHeaders", "CSVDelimiter"):
            if name in config:
                collector.add(
                    (*location, name),
                    format_value(config[name]),
                    'no such field, unless InputType is "CSV"',
                )
        return
    collector.check_required(config, location, ["CSVHeaderLocation"])
    headers = config.get("CSVHeaders")
    given = config.get("CSVHeaderLocation") == "GIVEN"
    fits = isinstance(headers, list) and headers and all(isinstance(one, str) for one in headers)
    if given and not fits:
        collector.add((*location, "CSVHeaders"), format_value(headers), "a list of column names")
    if not given and headers is not None:
        collector.add(
            (*location, "CSVHeaders"),
            format_value(headers),
            'no such field, unless CSVHeaderLocation is "GIVEN"',
        )


def check_batcher(collector: ProblemCollector, batcher: Any, location: JsonLocation) -> None:
    """Check the ``ItemBatcher`` of a Map."""
    if not collector.check_object(batcher, location):
        return
    collector.check_fields(batcher, location, fields.BATCHER)
    sizes = [name for name in fields.BATCHER if name != "BatchInput"]
    if not any(name in batcher for name in sizes):
        collector.add(location, "no size", f"one of {', '.join(sizes)}")
    for name in ("MaxItemsPerBatch", "MaxInputBytesPerBatch"):
        collector.check_at_most_one(batcher, location, (name, f"{name}Path"))
    if "BatchInput" in batcher:
        check_template(collector, batcher["BatchInput"], (*location, "BatchInput"))
