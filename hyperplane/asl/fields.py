"""Fields of machines and states, and the types of their values."""

from __future__ import annotations

from hyperplane.asl.field_types import (
    ANYTHING,
    BOOLEAN,
    COMPARED,
    ERROR_TEXT,
    NULLABLE_PATH,
    NULLABLE_REFERENCE,
    NUMBER,
    OBJECT,
    PATH,
    REFERENCE,
    RESOURCE,
    SECONDS,
    TEXT,
    TIMESTAMP,
    FieldType,
    number,
    one_of,
    whole_number,
)

Fields = dict[str, FieldType]

#: Type of fields whose values other checks validate.
NESTED = ANYTHING

MACHINE: Fields = {
    "Comment": TEXT, "StartAt": TEXT, "States": OBJECT, "Version": TEXT,
    "TimeoutSeconds": SECONDS, "QueryLanguage": one_of("JSONPath"),
}  # fmt: skip
BRANCH: Fields = {"Comment": TEXT, "StartAt": TEXT, "States": OBJECT}
PROCESSOR: Fields = {**BRANCH, "ProcessorConfig": OBJECT}
PROCESSOR_CONFIG: Fields = {
    "Mode": one_of("INLINE", "DISTRIBUTED"),
    "ExecutionType": one_of("STANDARD", "EXPRESS"),
}

_COMMON: Fields = {"Type": TEXT, "Comment": TEXT, "QueryLanguage": one_of("JSONPath")}
_PATHS: Fields = {"InputPath": NULLABLE_PATH, "OutputPath": NULLABLE_PATH}
_NEXT: Fields = {"Next": TEXT, "End": BOOLEAN}
_RESULT: Fields = {"Parameters": NESTED, "ResultPath": NULLABLE_REFERENCE}
_WORK: Fields = {**_RESULT, "ResultSelector": NESTED, "Retry": NESTED, "Catch": NESTED}
_FLOW: Fields = {**_COMMON, **_PATHS, **_NEXT}

STATES: dict[str, Fields] = {
    "Pass": {**_FLOW, **_RESULT, "Result": ANYTHING},
    "Task": {
        **_FLOW, **_WORK, "Resource": RESOURCE, "Credentials": OBJECT,
        "TimeoutSeconds": SECONDS, "TimeoutSecondsPath": REFERENCE,
        "HeartbeatSeconds": SECONDS, "HeartbeatSecondsPath": REFERENCE,
    },
    "Choice": {**_COMMON, **_PATHS, "Choices": NESTED, "Default": TEXT},
    "Wait": {
        **_FLOW, "Seconds": SECONDS, "SecondsPath": REFERENCE,
        "Timestamp": TIMESTAMP, "TimestampPath": REFERENCE,
    },
    "Succeed": {**_COMMON, **_PATHS},
    "Fail": {
        **_COMMON, "Error": TEXT, "ErrorPath": ERROR_TEXT, "Cause": TEXT, "CausePath": ERROR_TEXT,
    },
    "Parallel": {**_FLOW, **_WORK, "Branches": NESTED},
    "Map": {
        **_FLOW, **_WORK, "ItemProcessor": NESTED, "Iterator": NESTED, "ItemsPath": PATH,
        "ItemSelector": NESTED, "MaxConcurrency": whole_number(0), "MaxConcurrencyPath": REFERENCE,
        "ItemReader": NESTED, "ItemBatcher": NESTED, "ResultWriter": NESTED, "Label": TEXT,
        "ToleratedFailureCount": whole_number(0), "ToleratedFailureCountPath": REFERENCE,
        "ToleratedFailurePercentage": number(0, 100), "ToleratedFailurePercentagePath": REFERENCE,
    },
}  # fmt: skip
#: Required fields.
REQUIRED: dict[str, tuple[str, ...]] = {
    "Task": ("Resource",), "Choice": ("Choices",), "Parallel": ("Branches",),
}  # fmt: skip
#: Groups of fields of which exactly one is required.
EXACTLY_ONE: dict[str, tuple[tuple[str, ...], ...]] = {
    "Wait": (("Seconds", "SecondsPath", "Timestamp", "TimestampPath"),),
    "Map": (("ItemProcessor", "Iterator"),),
}
#: Groups of fields that exclude each other.
AT_MOST_ONE: dict[str, tuple[tuple[str, ...], ...]] = {
    "Task": (
        ("TimeoutSeconds", "TimeoutSecondsPath"), ("HeartbeatSeconds", "HeartbeatSecondsPath"),
    ),
    "Fail": (("Error", "ErrorPath"), ("Cause", "CausePath")),
    "Map": (
        ("ItemSelector", "Parameters"), ("MaxConcurrency", "MaxConcurrencyPath"),
        ("ToleratedFailureCount", "ToleratedFailureCountPath"),
        ("ToleratedFailurePercentage", "ToleratedFailurePercentagePath"),
    ),
}  # fmt: skip
#: Fields that only a Map with ``"Mode": "DISTRIBUTED"`` may have.
DISTRIBUTED = (
    "ItemReader", "ItemBatcher", "ResultWriter", "Label", "ToleratedFailureCount",
    "ToleratedFailureCountPath", "ToleratedFailurePercentage", "ToleratedFailurePercentagePath",
)  # fmt: skip
TEMPLATES = ("Parameters", "ResultSelector", "ItemSelector")

RETRIER: Fields = {
    "ErrorEquals": NESTED, "IntervalSeconds": SECONDS, "MaxAttempts": whole_number(0),
    "BackoffRate": number(1), "MaxDelaySeconds": SECONDS, "Comment": TEXT,
    "JitterStrategy": one_of("FULL", "NONE"),
}  # fmt: skip
CATCHER: Fields = {
    "ErrorEquals": NESTED, "Next": TEXT, "ResultPath": NULLABLE_REFERENCE, "Comment": TEXT,
}  # fmt: skip

_ORDERS = ("Equals", "LessThan", "GreaterThan", "LessThanEquals", "GreaterThanEquals")
_COMPARED = {"String": TEXT, "Numeric": NUMBER, "Timestamp": TIMESTAMP}
COMPARATORS: Fields = {
    **{f"{kind}{order}": _COMPARED[kind] for kind in _COMPARED for order in _ORDERS},
    **{f"{kind}{order}Path": COMPARED for kind in _COMPARED for order in _ORDERS},
    "BooleanEquals": BOOLEAN, "BooleanEqualsPath": COMPARED, "StringMatches": TEXT,
    **{f"Is{kind}": BOOLEAN for kind in
       ("Null", "Present", "Numeric", "String", "Boolean", "Timestamp")},
}  # fmt: skip
CONNECTIVES = ("And", "Or", "Not")

READER: Fields = {"Resource": RESOURCE, "ReaderConfig": OBJECT, "Parameters": NESTED}
READER_CONFIG: Fields = {
    "InputType": one_of("CSV", "JSON", "JSONL"),
    "CSVHeaderLocation": one_of("FIRST_ROW", "GIVEN"),
    "CSVHeaders": NESTED,
    "CSVDelimiter": one_of("COMMA", "PIPE", "SEMICOLON", "SPACE", "TAB"),
    "MaxItems": whole_number(1),
    "MaxItemsPath": REFERENCE,
}
BATCHER: Fields = {
    "MaxItemsPerBatch": whole_number(1), "MaxItemsPerBatchPath": REFERENCE, "BatchInput": NESTED,
    "MaxInputBytesPerBatch": whole_number(1), "MaxInputBytesPerBatchPath": REFERENCE,
}  # fmt: skip
#: Fields of JSONata and of variables, which this runner does not support, and replacements.
UNSUPPORTED_FIELDS = {
    "Assign": "variables are not supported; pass the value in the state's output",
    "Arguments": "a field of JSONata, which is not supported; use Parameters",
    "Output": "a field of JSONata, which is not supported; use ResultSelector and ResultPath",
    "Items": "a field of JSONata, which is not supported; use ItemsPath",
    "Condition": "a field of JSONata, which is not supported; use Variable and a comparison",
}
