"""Arguments of ``initialize_cluster`` and the checked request made from them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    WrapValidator,
    model_validator,
)

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import nearest, unknown_name
from hyperplane.core.pydantic_faults import CheckedModel, NestedFaults, text_like
from hyperplane.core.units import (
    advise_on_size,
    bytes_to_gb,
    format_number,
    is_boolean,
    parse_bytes,
    parse_seconds,
    whole_number,
)
from hyperplane.spec.budget import Budget, read_budget
from hyperplane.spec.memory import MemoryPolicy, find_policy_faults
from hyperplane.spec.node_range import read_nodes
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.settings.base import MAX_SECONDS
from hyperplane.spec.worker import WorkerSpec

MAX_PORT = 65_535
#: Value of an argument that the caller omitted.
OMITTED: Any = object()


def check_integer(value: object) -> object:
    """Accept integers of Python and NumPy and plain decimal text; refuse bools."""
    if is_boolean(value):
        raise ValueError("a whole number")
    number = whole_number(value)
    # int() also accepts bytes and text with "_" or non-ASCII digits, which are likely mistakes.
    if number is None and (isinstance(value, bytes) or not _is_plain_number_text(value)):
        raise ValueError("a whole number")
    return value if number is None else number


def _is_plain_number_text(value: object) -> bool:
    """Return whether a value is not text, or is ASCII text without ``_``."""
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


def _check_number(value: object) -> object:
    if is_boolean(value) or isinstance(value, bytes) or not _is_plain_number_text(value):
        raise ValueError("a number")
    return value


def _read_gigabytes(value: object) -> object:
    """Read gigabytes: a number, or text that may have a unit."""
    allowed = "a number of GB, or text such as '2.4GB'"
    if is_boolean(value) or isinstance(value, bytes) or not _is_plain_number_text(value):
        raise ValueError(allowed)
    if isinstance(value, str) and value.strip() and value.strip()[-1].isalpha():
        return bytes_to_gb(_parse_memory(value, allowed))
    return value


def _parse_memory(text: str, allowed: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError:
        advice = advise_on_size(text)
        raise ValueError(f"{allowed}; {advice}" if advice else allowed) from None


def _check_port(value: object) -> str:
    text = str(value).strip().lower()
    if text == "random":
        return text
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > MAX_PORT:
        raise ValueError(f"'random' or a port number from 0 to {MAX_PORT}")
    return text


def _read_duration(value: object) -> object:
    """Read seconds, or text such as "30 minutes"."""
    allowed = "seconds, more than 0, or text such as '30 minutes'"
    if is_boolean(value):
        raise ValueError(allowed)
    try:
        return None if value is None else parse_seconds(value)
    except ValueError:
        raise ValueError(allowed) from None


def _check_memory(value: str | None) -> str | None:
    if value is not None:
        _parse_memory(value, "a memory size such as '4Gi' or '4GB'")
    return value


def _read_policy(value: object) -> object:
    if not isinstance(value, Mapping):
        if value is None or isinstance(value, MemoryPolicy):
            return value
        raise ValueError("a MemoryPolicy, or a mapping such as {'pause': 0.85}")
    faults = find_policy_faults(value, "memory.")
    if faults:
        raise NestedFaults(faults)
    return MemoryPolicy(**value)


Whole = Annotated[int, BeforeValidator(check_integer)]
Count = Annotated[Whole, Field(ge=1, le=1_000_000)]
Gigabytes = Annotated[
    float, BeforeValidator(_read_gigabytes), Field(gt=0, le=1e12, allow_inf_nan=False)
]
Seconds = Annotated[
    float, BeforeValidator(_read_duration), Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)
]


@dataclass(frozen=True)
class ClusterArguments:
    """Arguments of one call as the caller passed them, before any check.

    ``unknown`` holds the arguments that are not parameters of ``initialize_cluster``.
    """

    num_workers: Any = OMITTED
    local_mode: Any = OMITTED
    worker_spec_yaml: Any = OMITTED
    timeout: Any = OMITTED
    nthreads: Any = OMITTED
    nprocs: Any = OMITTED
    ram_gb_per_proc: Any = OMITTED
    ram_gb_proc: Any = OMITTED
    cores_per_worker: Any = OMITTED
    scheduler_deploy_mode: Any = OMITTED
    dashboard_port: Any = OMITTED
    logging: Any = OMITTED
    ngpus: Any = OMITTED
    node_selector: Any = OMITTED
    scheduler_ram: Any = OMITTED
    scheduler_cpu: Any = OMITTED
    engine: Any = OMITTED
    engine_options: Any = OMITTED
    pool: Any = OMITTED
    memory: Any = OMITTED
    idle_timeout: Any = OMITTED
    name: Any = OMITTED
    local_fit: Any = OMITTED
    tuning: Any = OMITTED
    framework: Any = OMITTED
    budget: Any = OMITTED
    stall_timeout: Any = OMITTED
    oom: Any = OMITTED
    preflight: Any = OMITTED
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, arguments: Mapping[str, Any]) -> Self:
        """Create arguments from names and values, such as those of a pipeline file."""
        return cls().with_defaults(arguments)

    @property
    def given(self) -> dict[str, Any]:
        """Names and values of the known arguments that were not omitted."""
        values = {name: getattr(self, name) for name in _ARGUMENT_NAMES}
        return {name: value for name, value in values.items() if value is not OMITTED}

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """Return a copy in which omitted arguments have these values."""
        passed = self.given
        known = {n: v for n, v in defaults.items() if n in _ARGUMENT_NAMES and n not in passed}
        unknown = {n: v for n, v in defaults.items() if n not in _ARGUMENT_NAMES}
        return replace(self, **known, unknown={**unknown, **self.unknown})

    def without(self, names: Container[str]) -> Self:
        """Return a copy in which some arguments are omitted."""
        return replace(self, **{name: OMITTED for name in self.given if name in names})


_ARGUMENT_NAMES = tuple(each.name for each in fields(ClusterArguments) if each.name != "unknown")


class ClusterRequest(CheckedModel):
    """The checked arguments of ``initialize_cluster``, with the documented defaults.

    :func:`hyperplane.initialize_cluster` describes the fields. Sizes are per node: ``nprocs``
    worker processes of ``nthreads`` threads and ``ram_gb_per_proc`` GB on each of
    ``num_workers`` nodes.

    Raises
    ------
    RequestError
        With every field that is unknown or has an invalid value.

    Examples
    --------
    >>> request = ClusterRequest(num_workers=1, nprocs=5, nthreads=3, ram_gb_per_proc="2.4GB")
    >>> print(request.worker)
    5 processes x 3 threads x 2.4 GB
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    num_workers: Annotated[Count, WrapValidator(read_nodes)] = 2
    local_mode: bool = False
    worker_spec_yaml: str | None = None
    timeout: Seconds = 1200
    nthreads: Count = 1
    nprocs: Count = 15
    ram_gb_per_proc: Gigabytes = Field(
        0.7, validation_alias=AliasChoices("ram_gb_per_proc", "ram_gb_proc")
    )
    cores_per_worker: Annotated[
        float, BeforeValidator(_check_number), Field(gt=0, allow_inf_nan=False)
    ] = 15
    scheduler_deploy_mode: Literal["remote", "local"] = "remote"
    dashboard_port: Annotated[str, BeforeValidator(_check_port)] = "random"
    logging: Literal["quiet", "verbose"] = "quiet"
    ngpus: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    node_selector: dict[str, str] | str | None = None
    scheduler_ram: Annotated[str | None, AfterValidator(_check_memory)] = None
    scheduler_cpu: Annotated[str | float | None, BeforeValidator(_check_number)] = None
    engine: str = "auto"
    engine_options: dict[str, Any] | None = None
    pool: str | InstanceOf[PoolSpec] | None = None
    memory: Annotated[MemoryPolicy | None, BeforeValidator(_read_policy)] = None
    idle_timeout: Annotated[Seconds | None, BeforeValidator(_read_duration)] = None
    name: (
        Annotated[
            str,
            text_like(
                r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                "a name of at most 63 lower-case letters, digits and -, such as my-cluster",
            ),
        ]
        | None
    ) = None
    local_fit: Literal["fit", "exact"] | None = None
    tuning: str | None = None
    framework: str | None = None
    budget: Annotated[InstanceOf[Budget] | None, BeforeValidator(read_budget)] = None
    stall_timeout: Annotated[Seconds | None, BeforeValidator(_read_duration)] = None
    oom: Literal["retry", "raise"] | None = None
    preflight: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_omitted(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not OMITTED}

    @model_validator(mode="after")
    def _one_process_per_gpu(self) -> Self:
        """Set one process per GPU of a node if ``nprocs`` was omitted.

        The default of 15 would multiply ``ram_gb_per_proc`` by processes that never run. If
        ``ram_gb_per_proc`` was omitted too, the processes share the memory of the default node.
        """
        passed = self.model_fields_set
        if not self.ngpus or "nprocs" in passed:
            return self
        fields = type(self).model_fields
        if "ram_gb_per_proc" not in passed and self.pool is None:
            node = fields["nprocs"].default * fields["ram_gb_per_proc"].default
            self._set("ram_gb_per_proc", max(self.ram_gb_per_proc, node / self.ngpus))
        self._set("nprocs", self.ngpus)
        return self

    def _set(self, name: str, value: object) -> None:
        # Only validators may change the frozen model.
        self.__dict__[name] = value
        self.__pydantic_fields_set__.add(name)

    @property
    def worker(self) -> WorkerSpec:
        """Requested layout of one node."""
        return WorkerSpec.from_gb(
            self.nprocs, self.nthreads, self.ram_gb_per_proc, self.cores_per_worker, self.ngpus
        )


def read_request(
    arguments: ClusterArguments, function: str = "initialize_cluster", own: Sequence[str] = ()
) -> tuple[ClusterRequest, list[Fault]]:
    """Check all arguments, also against each other; return the request and all faults.

    The request has the default in place of each faulty argument. Messages name ``function`` and
    ``own``, its parameters that are not part of a request.
    """
    faults = [
        _unknown_argument(name, value, function, own) for name, value in arguments.unknown.items()
    ]
    if arguments.ram_gb_per_proc is not OMITTED and arguments.ram_gb_proc is not OMITTED:
        value = f"{arguments.ram_gb_proc!r} beside ram_gb_per_proc"
        faults.append(Fault("ram_gb_proc", value, "one of the two names"))
        arguments = arguments.without({"ram_gb_proc"})
    faulty: set[str] = set()
    try:
        request = _build_request(arguments)
    except RequestError as error:
        faults += error.faults
        faulty = {fault.where.partition(".")[0] for fault in error.faults}
        request = _build_request(arguments.without(faulty))
    if not faulty & {"nprocs", "nthreads", "cores_per_worker", "ngpus"}:
        faults += _check_threads(request)
    return request, faults


def _build_request(arguments: ClusterArguments) -> ClusterRequest:
    return ClusterRequest(
        num_workers=arguments.num_workers,
        local_mode=arguments.local_mode,
        worker_spec_yaml=arguments.worker_spec_yaml,
        timeout=arguments.timeout,
        nthreads=arguments.nthreads,
        nprocs=arguments.nprocs,
        ram_gb_per_proc=arguments.ram_gb_per_proc,
        ram_gb_proc=arguments.ram_gb_proc,
        cores_per_worker=arguments.cores_per_worker,
        scheduler_deploy_mode=arguments.scheduler_deploy_mode,
        dashboard_port=arguments.dashboard_port,
        logging=arguments.logging,
        ngpus=arguments.ngpus,
        node_selector=arguments.node_selector,
        scheduler_ram=arguments.scheduler_ram,
        scheduler_cpu=arguments.scheduler_cpu,
        engine=arguments.engine,
        engine_options=arguments.engine_options,
        pool=arguments.pool,
        memory=arguments.memory,
        idle_timeout=arguments.idle_timeout,
        name=arguments.name,
        local_fit=arguments.local_fit,
        tuning=arguments.tuning,
        framework=arguments.framework,
        budget=arguments.budget,
        stall_timeout=arguments.stall_timeout,
        oom=arguments.oom,
        preflight=arguments.preflight,
    )


def _unknown_argument(name: str, value: object, function: str, own: Sequence[str]) -> Fault:
    near = nearest(name, [*sorted(_ARGUMENT_NAMES), *own])
    return unknown_name(name, value, [*ClusterRequest.model_fields, *own], function, near)


def _check_threads(request: ClusterRequest) -> list[Fault]:
    # Published GPU examples run 8 threads on 2 cores, because the GPU does the work.
    # With a pool, the planner completes and checks the layout.
    threads = request.nprocs * request.nthreads
    is_complete = {"nprocs", "nthreads", "cores_per_worker"} <= request.model_fields_set
    pool_completes = request.pool is not None and not is_complete
    if request.ngpus or pool_completes or threads <= request.cores_per_worker:
        return []
    default = "" if "cores_per_worker" in request.model_fields_set else " (the default)"
    return [
        Fault(
            "nprocs x nthreads",
            f"{request.nprocs} x {request.nthreads} = {threads}",
            f"at most cores_per_worker = {format_number(request.cores_per_worker)}{default}",
            f"raise cores_per_worker to {threads} or ask for fewer processes or threads",
        )
    ]
