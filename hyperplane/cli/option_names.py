"""Messages of commands with the names of options in place of those of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typer.core import TyperCommand

from hyperplane.core.errors import Fault, RequestError

#: Python arguments that have another name as options -> name of the command's parameter.
_OTHER_NAMES = {"storage_options": "option", "token": "token_file", "url": "registry"}
_NONE = re.compile(r"\bNone\b")


class OptionCommand(TyperCommand):
    """Command whose errors name its options, as ``--batch-size``, not arguments of functions."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except RequestError as error:
            names, flags = _read_names(self.params)
            error.replace_faults([rename_fault(fault, names, flags) for fault in error.faults])
            raise


def _read_names(parameters: list[Any]) -> tuple[dict[str, str], set[str]]:
    """Return the names of options and arguments in messages, and those that are flags."""
    names, flags = dict[str, str](), set[str]()
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            names[parameter.name] = parameter.name.upper()
            continue
        names[parameter.name] = max(parameter.opts, key=len)
        if getattr(parameter, "is_flag", False):
            flags.add(names[parameter.name])
    for argument, name in _OTHER_NAMES.items():
        if argument not in names and name in names:
            names[argument] = names[name]
    return names, flags


def rename_fault(fault: Fault, names: Mapping[str, str], flags: set[str]) -> Fault:
    """Return a fault with the names of options.

    Examples
    --------
    >>> names = {"start_port": "--start-port", "trusted": "--trusted"}
    >>> fault = Fault("start_port", "None", "a port, or None", "choose another start_port")
    >>> print(rename_fault(fault, names, set()))
    --start-port is not set; expected a port, or no value; choose another --start-port
    >>> print(rename_fault(Fault("trusted", "False", "True if you trust it"), names, {"--trusted"}))
    --trusted is not set; expected --trusted if you trust it
    """
    first = re.match(r"\w*", fault.where)
    argument = first.group() if first else ""
    option = names.get(argument)
    if option is None:
        return fault
    asked = fault.asked
    allowed = _rename(fault.allowed, names)
    if option in flags and asked == "False":
        asked, allowed = "nothing", re.sub(r"\bTrue\b", option, allowed, count=1)
    return replace(
        fault,
        where=option + fault.where.removeprefix(argument),
        asked="nothing" if asked == "None" else asked,
        allowed=_NONE.sub("no value", allowed),
        advice=_NONE.sub("no value", _rename(fault.advice, names)),
    )


def _rename(text: str, names: Mapping[str, str]) -> str:
    """Return a text with options in place of arguments that are no words of English."""
    for argument, option in names.items():
        text = re.sub(rf"\b{argument}=True\b", option, text)
        text = re.sub(rf"(?<![\w.-]){argument}=", f"{option} ", text)
        text = re.sub(rf"\bgive {argument}\b", f"give {option}", text)
        if "_" in argument:
            text = re.sub(rf"(?<![\w.-]){argument}\b", option, text)
    return text
