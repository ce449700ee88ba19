"""Planning of a cluster: a request becomes a plan with engine, pool, layout and notes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from hyperplane import config
from hyperplane.clusters import registry
from hyperplane.clusters.call_arguments import (
    Advice,
    merge_memory_policy,
    select_advised_arguments,
)
from hyperplane.clusters.engine import (
    Engine,
    Feature,
    SupportedDeployMode,
    SupportsLayout,
    SupportsNodeFit,
)
from hyperplane.clusters.framework import OptionsDraft
from hyperplane.clusters.least_memory import find_memory_faults
from hyperplane.core.errors import DoesNotFit, EngineUnavailable, Fault, RequestError, check
from hyperplane.core.errors.base import request_error
from hyperplane.core.units import format_bytes, plural
from hyperplane.sizing import fit
from hyperplane.sizing.machine_fit import CLOSE_ADVICE, fit_machine
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.engine_names import DASK, framework_of
from hyperplane.spec.node_range import NodeRange, most_nodes
from hyperplane.spec.plan import ClusterPlan, new_cluster_name
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import OMITTED, ClusterArguments, ClusterRequest, read_request
from hyperplane.spec.settings import EngineSettings, MachineSettings
from hyperplane.spec.worker import WorkerSpec

_LAYOUT = ("nprocs", "nthreads", "ram_gb_per_proc")


def create_planner(function: str, arguments: ClusterArguments, own: Sequence[str] = ()) -> Planner:
    """Return the planner of a call of a function.

    ``own`` names the parameters of that function that are not part of a plan.
    """
    arguments = merge_memory_policy(arguments)
    explicit = arguments.given.keys() - {"num_workers"}
    if isinstance(arguments.num_workers, Advice):
        advised = select_advised_arguments(arguments.num_workers, explicit)
        arguments = replace(arguments, num_workers=OMITTED).with_defaults(advised)
    names = frozenset("ram_gb_per_proc" if name == "ram_gb_proc" else name for name in explicit)
    request, faults = read_request(arguments, function, own)
    faults = [_advise_pool(fault, arguments.num_workers) for fault in faults]
    return Planner(request, faults, explicit=names)


def _advise_pool(fault: Fault, num_workers: object) -> Fault:
    """Return the fault of a number of nodes with advice if it is the name of a pool."""
    if fault.where != "num_workers" or not isinstance(num_workers, str):
        return fault
    try:
        config.get_pool(num_workers)
    except RequestError:
        return fault
    return replace(fault, advice=f"a pool is passed by its name: pool={num_workers!r}")


@dataclass
class Planner:
    """Planner of one request, which collects all faults before it raises an error.

    ``request`` has the default in place of each faulty argument, and ``faults`` says what is wrong
    with it. ``explicit`` names the arguments that the caller passed, without those of advice.
    """

    request: ClusterRequest
    faults: list[Fault]
    explicit: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    _errors: list[RequestError] = field(default_factory=list)
    _unavailable: EngineUnavailable | None = None

    def has_valid_arguments(self) -> bool:
        """Return whether no argument is faulty and the pool exists."""
        with suppress(RequestError):
            if self.request.pool is not None:
                config.get_pool(self.request.pool)
            return not self.faults
        return False

    def plan(self) -> ClusterPlan:
        """Return the plan.

        Raises
        ------
        RequestError
            With all faults; a subclass such as UnknownPool if there is a single fault.
        EngineUnavailable
            If no engine can be used.
        """
        config.check_sections(registry.ENGINES)
        request = self.request
        engine = self._choose_engine()
        if engine is None:
            self._draft_options(DASK)
            self._choose_layout(uses_pools=self._unavailable is None)
            if self._unavailable is not None:
                if not self.faults:
                    raise self._unavailable
                allowed = "an engine that supports the request and is usable here"
                self.faults.append(Fault("engine", "'auto'", allowed, self._unavailable.message))
            self._raise_faults()
        settings = self._read_settings(engine)
        draft = self._draft_options(framework_of(engine.name))
        machine = engine.capacity(settings)
        asked, pool = self._choose_layout(engine.uses_pools)
        self._check_budget(pool)
        self.faults += find_memory_faults(framework_of(engine.name), asked)
        if draft is None or self.faults:
            self._raise_faults()
        worker, nodes, fit_note = asked, most_nodes(request.num_workers), ""
        if isinstance(engine, SupportsLayout):
            worker, fit_note = engine.layout(asked)
        if isinstance(engine, SupportsNodeFit) and request.local_fit != "exact":
            worker, nodes, note = engine.fit_nodes(worker, nodes)
            fit_note = "; ".join(filter(None, (fit_note, note)))
        if machine is not None and isinstance(settings, MachineSettings):
            cores = settings.single_process_cores
            if (request.local_fit or settings.fit) == "fit":
                requested = asked, most_nodes(request.num_workers)
                worker, nodes, note = fit_machine(
                    worker, nodes, machine, cores, self.explicit, requested
                )
                fit_note = "; ".join(filter(None, (fit_note, note)))
            else:
                self._note_excess(asked, machine)
            if machine.own and not fit_note:
                self.alerts.append(
                    f"clusters of this process already use cores and memory of this machine: "
                    f"{', '.join(machine.own)}; {CLOSE_ADVICE}"
                )
        check(find_memory_faults(framework_of(engine.name), worker))  # a machine may have less
        max_nodes, nodes = nodes, min(nodes, int(request.num_workers))
        self._note_deploy_mode(engine)
        for name in sorted(engine.ignored & request.model_fields_set):
            if getattr(request, name):
                self.notes.append(f"{name} is ignored: engine {engine.name} does not support it")
        return ClusterPlan(
            name=request.name or new_cluster_name(framework_of(engine.name)),
            engine=engine.name,
            request=self.request,
            pool=pool,
            asked=asked,
            worker=worker,
            nodes=nodes,
            settings=settings,
            options=draft.for_layout(worker, max_nodes),
            notes=(*self.notes, *([fit_note] if fit_note else []), *self.alerts),
            fit_note=fit_note,
            alerts=tuple(self.alerts),
            max_nodes=max_nodes if max_nodes > nodes else None,
            pools=tuple(config.pools().values()) if engine.uses_pools else (),
        )

    def _note_deploy_mode(self, engine: Engine) -> None:
        """Note where the scheduler runs if the engine does not support the requested mode."""
        supported: SupportedDeployMode | None = getattr(engine, "supported_deploy_mode", None)
        asked = self.request.scheduler_deploy_mode
        if (
            supported is None
            or asked == supported.mode
            or "scheduler_deploy_mode" not in self.explicit
        ):
            return
        self.alerts.append(
            f"scheduler_deploy_mode={asked!r} is changed to {supported.mode!r} with engine "
            f"{engine.name}: {supported.reason}"
        )
        self.request = self.request.model_copy(update={"scheduler_deploy_mode": supported.mode})

    def _draft_options(self, framework: str) -> OptionsDraft | None:
        """Return the draft of a framework's section of the plan; None if it has faults."""
        try:
            draft = registry.FRAMEWORKS.load(framework)().draft_options(self.request)
        except RequestError as error:
            self._add_error(error)
            return None
        self.notes += draft.notes
        self.alerts += draft.alerts
        return draft

    def _read_settings(self, engine: Engine) -> EngineSettings:
        """Return the settings of the engine, updated with ``engine_options``."""
        settings = config.engine_settings(engine.name, engine.settings)
        try:
            settings = settings.with_options(self.request.engine_options or {})
        except RequestError as error:
            self._add_error(error)
        else:
            self.faults += engine.faults(self.request, settings)
        return settings

    def _note_excess(self, asked: WorkerSpec, machine: MachineCapacity) -> None:
        """Add a note if a request that is started unchanged is larger than this machine."""
        nodes = most_nodes(self.request.num_workers)
        threads, ram = nodes * asked.total_threads, nodes * asked.total_ram
        if threads > machine.cores or ram > machine.ram:
            # Threads share cores; memory that is not there ends processes.
            notes = self.alerts if ram > machine.ram else self.notes
            notes.append(
                f"the cluster is larger than this machine: {plural(threads, 'thread')} on "
                f"{plural(machine.cores, 'core')}, {format_bytes(ram)} of "
                f"{format_bytes(machine.ram)} free memory (less a reserve); "
                "local_fit='fit' reduces it"
            )

    def _check_budget(self, pool: PoolSpec | None) -> None:
        """Add a fault if a budget is money in another currency, or the pool has no price."""
        budget = self.request.budget
        if budget is None or not budget.currency:
            return
        currency = config.sizing_rules().currency
        if budget.currency != currency:
            allowed = f"core-hours, or an amount in {currency}, the currency of the pools' prices"
            advice = "hyperplane.sizing.currency sets this currency"
            self.faults.append(Fault("budget", repr(str(budget)), allowed, advice))
            return
        if pool is not None and pool.price_per_hour:
            return
        name = "a pool" if pool is None else f"pool {pool.name}"
        allowed = f"core-hours, because {name} has no price"
        advice = "set price_per_hour of the pool in hyperplane.pools"
        self.faults.append(Fault("budget", repr(str(budget)), allowed, advice))

    def _raise_faults(self) -> NoReturn:
        if len(self.faults) == 1 and self._errors:
            raise self._errors[0]
        raise request_error(self.faults)

    def _add_error(self, error: RequestError) -> None:
        self._errors.append(error)
        self.faults += error.faults

    def _choose_engine(self) -> Engine | None:
        """Return the requested engine, or the first usable one that supports the request."""
        try:
            name, candidates = self._find_engine_names()
            if name != "auto":
                engine = registry.load(name)
                self.faults += self._find_unsupported(engine)
                return engine
        except RequestError as error:
            self._add_error(error)
            return None
        engines = [registry.load(each) for each in candidates]
        supporting = [engine for engine in engines if not self._find_unsupported(engine)]
        usable = [engine for engine in supporting if engine.available().usable]
        if usable:
            self.notes.append(f"engine auto: {usable[0].name}, {usable[0].available().reason}")
            return usable[0]
        if not supporting:
            self.faults += self._find_unsupported(engines[0])
            return engines[0]
        reasons = "; ".join(f"{engine.name}: {engine.available().reason}" for engine in supporting)
        self._unavailable = EngineUnavailable("auto", reasons)
        return None

    def _find_engine_names(self) -> tuple[str, list[str]]:
        """Return the name of the requested engine, or ``"auto"`` and the names of candidates."""
        name, framework = self.request.engine, self.request.framework
        if self.request.local_mode:
            if name not in {"auto", "local"}:
                advice = "pass only one of the two"
                self.faults.append(
                    Fault("local_mode", "True", f"False with engine={name!r}", advice)
                )
            name = "local"
        if framework is not None:
            registry.FRAMEWORKS.load(framework)
            name = registry.name_engine(framework, name)
        if name != "auto":
            return name, []
        candidates = list(config.auto_engines(registry.ENGINES))
        if framework is not None:
            candidates = registry.select_engines(framework, candidates)
        return name, candidates

    def _find_unsupported(self, engine: Engine) -> list[Fault]:
        """Return a fault for each feature of the request that the engine lacks."""
        faults = []
        for feature, argument, value, instead in self._requested_features():
            if not _supports(engine, feature):
                allowed = f"{instead}: engine {engine.name} has no {feature.value}"
                others = _engines_with(feature, framework_of(engine.name))
                advice = f"choose another engine: {', '.join(others)}" if others else ""
                faults.append(Fault(argument, value, allowed, advice))
        return faults

    def _requested_features(self) -> list[tuple[Feature, str, str, str]]:
        """Return features, their arguments with values, and the values without the feature."""
        request = self.request
        features = []
        if request.ngpus:
            features.append((Feature.GPUS, "ngpus", str(request.ngpus), "0"))
        if isinstance(request.num_workers, NodeRange):
            nodes = str(request.num_workers)
            features.append((Feature.ADAPTIVE, "num_workers", nodes, "one number"))
        if request.budget is not None:
            features.append((Feature.BUDGET, "budget", str(request.budget), "None"))
        return features

    def _choose_layout(self, uses_pools: bool) -> tuple[WorkerSpec, PoolSpec | None]:
        """Return the requested layout of a node, and the pool for it."""
        request = self.request
        if request.pool is None:
            return request.worker, self._find_smallest_pool(uses_pools)
        try:
            pool = config.get_pool(request.pool)
            worker = self._complete_layout(pool)
            fit.check_fits(worker, pool)
        except RequestError as error:
            self._add_error(error)
            return request.worker, None
        return worker, pool

    def _complete_layout(self, pool: PoolSpec) -> WorkerSpec:
        """Return a layout with the requested values, completed with values that suit the pool."""
        request = self.request
        passed = request.model_fields_set
        if {*_LAYOUT, "cores_per_worker"} <= passed:
            return request.worker
        cores = None
        if "cores_per_worker" in passed:
            cores = request.cores_per_worker
            usable = max(1, min(cores, pool.allocatable_cores))
            pool = pool.model_copy(update={"allocatable_cores": usable})
        proposed = fit.propose_worker(
            pool,
            nprocs=request.nprocs if "nprocs" in passed else None,
            nthreads=request.nthreads if "nthreads" in passed else None,
            ram_gb_per_proc=request.ram_gb_per_proc if "ram_gb_per_proc" in passed else None,
        )
        return replace(
            proposed, cores_per_worker=cores or proposed.cores_per_worker, ngpus=request.ngpus
        )

    def _find_smallest_pool(self, uses_pools: bool) -> PoolSpec | None:
        worker = self.request.worker
        cores = max(worker.cores_per_worker, 0 if worker.ngpus else worker.total_threads)
        try:
            return fit.smallest_pool(config.pools().values(), cores, worker.total_ram, worker.ngpus)
        except DoesNotFit as error:
            if uses_pools:
                self._add_error(error)
            else:
                self.notes.append(
                    "no pool has nodes of the requested size; this engine needs no pool"
                )
            return None


def _supports(engine: Engine, feature: Feature) -> bool:
    """Return whether an engine supports a feature; GPUs unless it says that it does not."""
    if feature is Feature.GPUS:
        return feature not in engine.unsupported
    return feature in getattr(engine, "supported", frozenset())


def _engines_with(feature: Feature, framework: str) -> list[str]:
    """Return the engines of a framework that support a feature and can be imported."""
    names = []
    for name in registry.ENGINES.names():
        if framework_of(name) != framework:
            continue
        with suppress(Exception):  # an engine of another package may raise any exception
            if _supports(registry.load(name), feature):
                names.append(name)
    return names
