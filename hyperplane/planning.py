"""From a checked request to a plan: engine, pool, layout and notes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from hyperplane import config, config_memory
from hyperplane.engines import registry
from hyperplane.engines.base import Engine, Feature, SchedulerPlace, SupportsLayout, SupportsNodeFit
from hyperplane.engines.dask_settings import user_settings
from hyperplane.errors import DoesNotFit, EngineUnavailable, Fault, RequestError
from hyperplane.errors.requests import error_of
from hyperplane.sizing import fit
from hyperplane.sizing.machine_fit import fit_machine
from hyperplane.spec.capacity import Capacity
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.plan import ClusterPlan, new_cluster_name
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, LocalSettings
from hyperplane.spec.tuning import AS_DASK, Tuning, TuningProfile
from hyperplane.spec.worker import WorkerSpec
from hyperplane.units import format_bytes, plural

_LAYOUT = ("nprocs", "nthreads", "ram_gb_per_proc")


@dataclass
class Study:
    """One request on its way to a plan; faults are gathered until all have been found.

    Parameters
    ----------
    request : ClusterRequest
        What was asked, with defaults in place of faulty arguments.
    faults : list of Fault
        What is wrong so far.
    explicit : frozenset of str
        Names of the arguments that the caller gave; advice gives others.
    """

    request: ClusterRequest
    faults: list[Fault]
    explicit: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    _errors: list[RequestError] = field(default_factory=list)
    _unavailable: EngineUnavailable | None = None

    def has_valid_arguments(self) -> bool:
        """Whether the arguments are valid by themselves, and the pool exists."""
        with suppress(RequestError):
            if self.request.pool is not None:
                config.get_pool(self.request.pool)
            return not self.faults
        return False

    def plan(self) -> ClusterPlan:
        """The finished plan.

        Raises
        ------
        RequestError
            With all faults; its own subclass when there is one fault only.
        EngineUnavailable
            When no engine can be used.
        """
        config.check_sections()
        request = self.request
        engine = self._engine()
        if engine is None:
            self._profile()
            self._layout(uses_pools=self._unavailable is None)
            if self._unavailable is not None:
                if not self.faults:
                    raise self._unavailable
                allowed = "an engine that can do it here"
                self.faults.append(Fault("engine", "'auto'", allowed, str(self._unavailable)))
            self._refuse()
        settings = self._settings(engine)
        memory = self._memory()
        machine = engine.capacity(settings)
        profile = self._profile()
        asked, pool = self._layout(engine.uses_pools)
        if self.faults:
            self._refuse()
        worker, nodes, fit_note = asked, request.num_workers, ""
        if isinstance(engine, SupportsLayout):
            worker, fit_note = engine.layout(asked)
        if isinstance(engine, SupportsNodeFit) and request.local_fit != "exact":
            worker, nodes, note = engine.fit_nodes(worker, nodes)
            fit_note = "; ".join(filter(None, (fit_note, note)))
        if machine is not None and isinstance(settings, LocalSettings):
            cores = settings.single_process_cores
            if (request.local_fit or settings.fit) == "fit":
                worker, nodes, fit_note = fit_machine(asked, nodes, machine, cores, self.explicit)
            else:
                self._note_excess(asked, machine)
            if machine.own and not fit_note:
                self.alerts.append(
                    f"open in this program: {', '.join(machine.own)}, with cores and memory of "
                    "this machine; replace=True closes the one that the same cell has started"
                )
        self._tell_scheduler_place(engine)
        processes = nodes * worker.nprocs
        for name in sorted(engine.ignored & request.model_fields_set):
            if getattr(request, name):
                self.notes.append(f"{name} means nothing to engine {engine.name}; not used")
        return ClusterPlan(
            name=request.name or new_cluster_name(),
            engine=engine.name,
            request=self.request,
            pool=pool,
            asked=asked,
            worker=worker,
            nodes=nodes,
            memory=memory,
            settings=settings,
            notes=(*self.notes, *([fit_note] if fit_note else []), *self.alerts),
            fit_note=fit_note,
            alerts=tuple(self.alerts),
            tuning=Tuning.of(*profile, processes=processes, nthreads=worker.nthreads),
        )

    def _tell_scheduler_place(self, engine: Engine) -> None:
        """Say where the scheduler runs when the caller wants it where the engine has none."""
        place: SchedulerPlace | None = getattr(engine, "scheduler_place", None)
        asked = self.request.scheduler_deploy_mode
        if place is None or asked == place.mode or "scheduler_deploy_mode" not in self.explicit:
            return
        self.alerts.append(
            f"scheduler_deploy_mode={asked!r} is {place.mode!r} with engine {engine.name}: "
            f"{place.reason}"
        )
        self.request = self.request.model_copy(update={"scheduler_deploy_mode": place.mode})

    def _memory(self) -> MemoryPolicy:
        """The freeze policy: the argument's, or else that of the configuration."""
        asked = self.request.memory
        with user_settings():
            policy = config.memory_policy() if asked is None else asked
            if asked is None and (note := config_memory.thresholds_of_dask()):
                self.notes.append(note)
            if note := config_memory.overridden(asked):
                self.alerts.append(note)
        return policy

    def _settings(self, engine: Engine) -> EngineSettings:
        """The engine's settings with what this call wants otherwise."""
        settings = config.engine_settings(engine.name, engine.settings)
        try:
            settings = settings.with_options(self.request.engine_options or {})
        except RequestError as error:
            self._gather(error)
        else:
            self.faults += engine.faults(self.request, settings)
        return settings

    def _note_excess(self, asked: WorkerSpec, machine: Capacity) -> None:
        """Say when a request that is started as it is needs more than this machine has."""
        nodes = self.request.num_workers
        threads, ram = nodes * asked.total_threads, nodes * asked.total_ram
        if threads > machine.cores or ram > machine.ram:
            self.notes.append(
                f"more than this machine has: {plural(threads, 'thread')} on "
                f"{plural(machine.cores, 'core')}, {format_bytes(ram)} of "
                f"{format_bytes(machine.ram)} free less a reserve; local_fit is exact"
            )

    def _refuse(self) -> NoReturn:
        if len(self.faults) == 1 and self._errors:
            raise self._errors[0]
        raise error_of(self.faults)

    def _gather(self, error: RequestError) -> None:
        self._errors.append(error)
        self.faults += error.faults

    def _engine(self) -> Engine | None:
        """The engine asked for, or the first usable one that can do what is asked."""
        name = self.request.engine
        if self.request.local_mode:
            if name not in {"auto", "local"}:
                advice = "leave out one of the two"
                self.faults.append(
                    Fault("local_mode", "True", f"False with engine={name!r}", advice)
                )
            name = "local"
        if name != "auto":
            try:
                engine = registry.load(name)
            except RequestError as error:
                self._gather(error)
                return None
            self.faults += self._beyond(engine)
            return engine
        candidates = [registry.load(name) for name in config.auto_engines()]
        able = [engine for engine in candidates if not self._beyond(engine)]
        usable = [engine for engine in able if engine.available().usable]
        if usable:
            self.notes.append(f"engine auto: {usable[0].name}, {usable[0].available().reason}")
            return usable[0]
        if not able:
            self.faults += self._beyond(candidates[0])
            return candidates[0]
        reasons = "; ".join(f"{engine.name}: {engine.available().reason}" for engine in able)
        self._unavailable = EngineUnavailable("auto", reasons)
        return None

    def _beyond(self, engine: Engine) -> list[Fault]:
        """Faults for what the request asks and the engine does not have."""
        if not (self.request.ngpus and Feature.GPUS in engine.unsupported):
            return []
        allowed = f"0: engine {engine.name} has no {Feature.GPUS.value}"
        advice = "name an engine that has; known: " + ", ".join(registry.names())
        return [Fault("ngpus", str(self.request.ngpus), allowed, advice)]

    def _profile(self) -> tuple[str, TuningProfile]:
        """The profile of settings of Dask, and its name."""
        try:
            return config.tuning().find(self.request.tuning)
        except RequestError as error:
            self._gather(error)
            return AS_DASK, TuningProfile()

    def _layout(self, uses_pools: bool) -> tuple[WorkerSpec, PoolSpec | None]:
        """The layout of a node as asked, and the pool it belongs on."""
        request = self.request
        if request.pool is None:
            return request.worker, self._closest_pool(uses_pools)
        try:
            pool = config.get_pool(request.pool)
            worker = self._worker_for(pool)
            fit.check_fits(worker, pool)
        except RequestError as error:
            self._gather(error)
            return request.worker, None
        return worker, pool

    def _worker_for(self, pool: PoolSpec) -> WorkerSpec:
        """What was given of a layout is kept, and a pool fills in the rest."""
        request = self.request
        given = request.model_fields_set
        if {*_LAYOUT, "cores_per_worker"} <= given:
            return request.worker
        chosen: dict[str, Any] = {name: getattr(request, name) for name in _LAYOUT if name in given}
        cores = None
        if "cores_per_worker" in given:
            cores = request.cores_per_worker
            room = max(1, min(cores, pool.allocatable_cores))
            pool = pool.model_copy(update={"allocatable_cores": room})
        proposed = fit.propose_worker(pool, **chosen)
        return replace(
            proposed, cores_per_worker=cores or proposed.cores_per_worker, ngpus=request.ngpus
        )

    def _closest_pool(self, uses_pools: bool) -> PoolSpec | None:
        worker = self.request.worker
        cores = max(worker.cores_per_worker, 0 if worker.ngpus else worker.total_threads)
        try:
            return fit.smallest_pool(config.pools().values(), cores, worker.total_ram, worker.ngpus)
        except DoesNotFit as error:
            if uses_pools:
                self._gather(error)
            else:
                self.notes.append("no pool has nodes as large as asked; none is needed here")
            return None
