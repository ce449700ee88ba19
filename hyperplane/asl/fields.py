"""Which fields there are, and what may stand in them."""

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

#: Fields whose value other rules look into; here they are only known.
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
#: Fields that must be there.
NEEDED: dict[str, tuple[str, ...]] = {
    "Task": ("Resource",), "Choice": ("Choices",), "Parallel": ("Branches",),
}  # fmt: skip
#: Of each group exactly one.
EXACTLY_ONE: dict[str, tuple[tuple[str, ...], ...]] = {
    "Wait": (("Seconds", "SecondsPath", "Timestamp", "TimestampPath"),),
    "Map": (("ItemProcessor", "Iterator"),),
}
#: Of each group one or none.
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
#: Fields of a Map whose processor says ``"Mode": "DISTRIBUTED"``.
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
    **{f"Is{what}": BOOLEAN for what in
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
#: Fields of the other query language, and of variables, which this runner does not know.
UNSUPPORTED_FIELDS = {
    "Assign": "variables are not supported; carry the value in the state's output",
    "Arguments": "that is of JSONata; write Parameters",
    "Output": "that is of JSONata; write ResultSelector and ResultPath",
    "Items": "that is of JSONata; write ItemsPath",
    "Condition": "that is of JSONata; write Variable and a comparison",
}
