"""The parts of states: rules of a Choice, Retry, Catch, and those of a distributed Map."""

from __future__ import annotations

from typing import Any

from hyperplane.asl import fields, templates
from hyperplane.asl.field_types import PATH, TEXT
from hyperplane.asl.json_parser import Place
from hyperplane.asl.problems import Report, shown

ALL = "States.ALL"


def check_rules(report: Report, value: Any, place: Place) -> None:
    """The ``Choices`` of a Choice state."""
    for inside, rule in report.objects(value, place):
        _rule(report, rule, inside, top=True)


def _rule(report: Report, rule: dict[str, Any], place: Place, *, top: bool) -> None:
    known: fields.Fields = {"Comment": TEXT}
    if top:
        known["Next"] = TEXT
        report.needed(rule, place, ["Next"])
    connectives = [name for name in fields.CONNECTIVES if name in rule]
    if connectives and "Variable" not in rule:
        report.fields(rule, place, {**known, **dict.fromkeys(connectives, fields.NESTED)})
        report.at_most_one(rule, place, fields.CONNECTIVES)
        for name in connectives:
            _connective(report, rule[name], (*place, name))
        return
    known |= {"Variable": PATH, **fields.COMPARATORS}
    report.fields(rule, place, known)
    report.needed(rule, place, ["Variable"])
    comparators = [name for name in rule if name in fields.COMPARATORS]
    if len(comparators) != 1:
        asked = " and ".join(comparators) or "no comparison"
        report.add(place, asked, "one comparison, such as StringEquals or IsPresent")


def _connective(report: Report, value: Any, place: Place) -> None:
    if place[-1] == "Not":
        if report.is_object(value, place):
            _rule(report, value, place, top=False)
        return
    for inside, rule in report.objects(value, place):
        _rule(report, rule, inside, top=False)


def check_clauses(report: Report, value: Any, place: Place) -> None:
    """A ``Retry`` or a ``Catch``."""
    if value == []:  # allowed, and as good as none
        return
    clauses = report.objects(value, place)
    catching = place[-1] == "Catch"
    for inside, clause in clauses:
        report.fields(clause, inside, fields.CATCHER if catching else fields.RETRIER)
        report.needed(clause, inside, ["ErrorEquals", *(["Next"] if catching else [])])
        if "ErrorEquals" in clause:
            last = inside[-1] == len(value) - 1
            _errors(report, clause["ErrorEquals"], (*inside, "ErrorEquals"), last)


def _errors(report: Report, names: Any, place: Place, last: bool) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        report.add(place, shown(names), "a list of at least one error name")
    elif ALL in names and (len(names) > 1 or not last):
        report.add(place, shown(names), f"{ALL} alone, in the last entry")


def check_template(report: Report, value: Any, place: Place) -> None:
    """A payload template."""
    if not report.is_object(value, place):
        return
    for inside, asked, why in templates.problems(value):
        report.add((*place, *inside), shown(asked), "a path or an intrinsic function", why)


def check_reader(report: Report, reader: Any, place: Place) -> None:
    """The ``ItemReader`` of a Map."""
    if not report.is_object(reader, place):
        return
    report.fields(reader, place, fields.READER)
    report.needed(reader, place, ["Resource"])
    if "Parameters" in reader:
        check_template(report, reader["Parameters"], (*place, "Parameters"))
    config = reader.get("ReaderConfig", {})
    inside = (*place, "ReaderConfig")
    if not isinstance(config, dict):
        return
    report.fields(config, inside, fields.READER_CONFIG)
    report.at_most_one(config, inside, ("MaxItems", "MaxItemsPath"))
    _headers(report, config, inside)


def _headers(report: Report, config: dict[str, Any], place: Place) -> None:
    if config.get("InputType") != "CSV":
        for name in ("CSVHeaderLocation", "CSVHeaders", "CSVDelimiter"):
            if name in config:
                report.add(
                    (*place, name), shown(config[name]), 'nothing, unless InputType is "CSV"'
                )
        return
    report.needed(config, place, ["CSVHeaderLocation"])
    headers = config.get("CSVHeaders")
    given = config.get("CSVHeaderLocation") == "GIVEN"
    fits = isinstance(headers, list) and headers and all(isinstance(one, str) for one in headers)
    if given and not fits:
        report.add((*place, "CSVHeaders"), shown(headers), "a list of names of columns")
    if not given and headers is not None:
        report.add(
            (*place, "CSVHeaders"), shown(headers), 'nothing, unless CSVHeaderLocation is "GIVEN"'
        )


def check_batcher(report: Report, batcher: Any, place: Place) -> None:
    """The ``ItemBatcher`` of a Map."""
    if not report.is_object(batcher, place):
        return
    report.fields(batcher, place, fields.BATCHER)
    sizes = [name for name in fields.BATCHER if name != "BatchInput"]
    if not any(name in batcher for name in sizes):
        report.add(place, "no size", f"one of {', '.join(sizes)}")
    for name in ("MaxItemsPerBatch", "MaxInputBytesPerBatch"):
        report.at_most_one(batcher, place, (name, f"{name}Path"))
    if "BatchInput" in batcher:
        check_template(report, batcher["BatchInput"], (*place, "BatchInput"))
