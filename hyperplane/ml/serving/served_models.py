"""Models that a server has loaded, by name and version."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.ml.prediction.model_files import (
    DEFAULT_RECORD,
    VERSION_RECORD,
    find_model,
    load_model,
)
from hyperplane.ml.prediction.model_formats import FRAMEWORKS
from hyperplane.ml.prediction.predictors import Predictor
from hyperplane.ml.prediction.registry import ModelRegistry
from hyperplane.ml.serving.batching import Batcher
from hyperplane.ml.serving.serve_settings import ServeSettings
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Seconds between two reads of the default versions in a registry.
REFRESH_SECONDS = 2.0
#: Versions other than the default ones that a process keeps.
_MAX_OTHERS = 8
#: Threads that load versions; those of asyncio answer requests for lists and metrics.
_LOADERS = 2
#: Seconds for which a missing model is not looked up again, and the number of such models.
_MISSING_SECONDS, _MAX_MISSING = 5.0, 1000
#: Seconds until a version that could not be loaded is read again, doubled up to the second number.
_RETRY_SECONDS, _MAX_RETRY_SECONDS = 5.0, 60.0
#: Characters of an answer about a missing model that is kept.
_MAX_TEXT = 10_000
_log = logging.getLogger(__name__)

Observe = Callable[[str], Callable[[int], None]]


class ModelNotFound(LookupError):
    """There is no model, or no version of it, of this name."""


class ModelNotLoaded(Exception):
    """A version could not be loaded some seconds ago, for a reason that was raised then."""


@dataclass
class ServedVersion:
    """One loaded version of a model."""

    name: str
    version: str
    framework: str
    predictor: Predictor = field(repr=False)
    batcher: Batcher = field(repr=False)
    is_default: bool = True


class ServedModels:
    """Versions of models that a server has loaded.

    Parameters
    ----------
    settings : ServeSettings
        Model or registry to serve.
    observe : callable
        Returns, for the name of a model, a function that is called with the size of each batch.
    """

    def __init__(self, settings: ServeSettings, observe: Observe) -> None:
        self._settings, self._observe = settings, observe
        self._registry: ModelRegistry | None = None
        self._only: str | None = None
        self._fixed: ServedVersion | None = None
        self._defaults: dict[str, str] = {}
        self._loaded: OrderedDict[tuple[str, str], ServedVersion] = OrderedDict()
        self._missing: dict[tuple[str, str | None], tuple[float, str]] = {}
        #: Version -> time of the next attempt to load it, and seconds between attempts.
        self._broken: dict[tuple[str, str], tuple[float, float]] = {}
        #: Lookups and loads that run, for all requests that wait for them.
        self._running: dict[Any, asyncio.Task[ServedVersion]] = {}
        self._loaders = ThreadPoolExecutor(_LOADERS, "hyperplane-load")

    @property
    def title(self) -> str:
        """The served models, for the line that a start prints."""
        if self._fixed is not None:
            return f"{self._fixed.name} {self._fixed.version}"
        if self._only is not None:
            return f"{self._only}, by default {self._defaults[self._only]}"
        return "the models of the registry"

    @property
    def name(self) -> str | None:
        """Name of the only model; None for a registry with all of its models."""
        return self._only if self._fixed is None else self._fixed.name

    def open(self) -> None:
        """Load the model, or the default version of the named model of a registry.

        Raises
        ------
        HyperplaneError
            If there is no such model, or it cannot be loaded.
        """
        settings = self._settings
        if settings.registry is not None:
            self._registry = ModelRegistry(
                settings.registry, storage_options=settings.storage_options
            )
            self._only = settings.model
            if self._only is None:
                if not self._registry.list_versions():
                    check([Fault("registry", repr(settings.registry), "a registry with models")])
                return
        else:
            self._open_url(str(settings.model))
        if self._registry is not None and self._only is not None:
            found = self._registry.get(self._only)
            key = (self._only, found.version)
            self._loaded[key] = self._load_unless_failed(*key, found.url)
            self._defaults[self._only] = found.version

    def _open_url(self, url: str) -> None:
        """Open a file or folder of a model, or a model or version of a registry."""
        target = resolve_target(url, self._settings.storage_options)
        files = StoreFiles(target.store)
        parent, _, name = url.rstrip("/").rpartition("/")
        is_file = files.is_file(target.path)
        if parent and not is_file and files.is_file(f"{target.path}/{DEFAULT_RECORD}"):
            self._registry = ModelRegistry(parent, storage_options=self._settings.storage_options)
            self._only = name
            return
        version = "1"
        if not is_file and files.is_file(f"{target.path}/{VERSION_RECORD}"):
            name, version = PurePosixPath(target.path).parts[-2:]
        else:
            name = _name_of_path(target.path)
        self._fixed = self._load(name, version, url)

    def _load(self, name: str, version: str, url: str) -> ServedVersion:
        settings = self._settings
        file = find_model(url, trusted=settings.trusted, storage_options=settings.storage_options)
        predictor, _ = load_model(file)
        batcher = Batcher(predictor, settings.batch_size, settings.batch_wait, self._observe(name))
        return ServedVersion(name, version, FRAMEWORKS[file.suffix], predictor, batcher)

    async def _load_default(self, name: str) -> ServedVersion:
        """Load the default version of a model of the registry, and use it from now on."""
        found = await asyncio.to_thread(cast(ModelRegistry, self._registry).get, name)
        served = await self._load_version(name, found.version, found.url)
        previous = self._defaults.get(name)
        self._defaults[name] = found.version
        if previous not in (None, found.version):
            _log.warning("the default version of %s is now %s", name, found.version)
        self._remove_old_versions()
        return served

    async def _load_version(self, name: str, version: str, url: str) -> ServedVersion:
        async def load() -> ServedVersion:
            served = await asyncio.get_running_loop().run_in_executor(
                self._loaders, self._load_unless_failed, name, version, url
            )
            self._loaded[name, version] = served
            return served

        served = self._loaded.get((name, version))
        return served or await self._share(("load", name, version), load)

    async def _share(
        self, key: Any, start: Callable[[], Coroutine[Any, Any, ServedVersion]]
    ) -> ServedVersion:
        """Return the result of a function that runs once for all concurrent requests."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(start())
            task.add_done_callback(lambda done: self._remove_task(key, done))
        return await asyncio.shield(task)  # other requests wait for it, too

    def _remove_task(self, key: Any, task: asyncio.Task[ServedVersion]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # which asyncio would log if no request waits for it any more

    def _load_unless_failed(self, name: str, version: str, url: str) -> ServedVersion:
        """Load a version, unless that failed some seconds ago: a large one takes long to load."""
        until, seconds = self._broken.get((name, version), (0.0, _RETRY_SECONDS))
        if time.monotonic() < until:
            raise ModelNotLoaded
        try:
            served = self._load(name, version, url)
        except Exception:
            again = time.monotonic() + seconds
            self._broken[name, version] = again, min(2 * seconds, _MAX_RETRY_SECONDS)
            raise
        self._broken.pop((name, version), None)
        return served

    def _remove_old_versions(self) -> None:
        others = [key for key in list(self._loaded) if self._defaults.get(key[0]) != key[1]]
        for key in others[: max(0, len(others) - _MAX_OTHERS)]:
            removed = self._loaded.pop(key, None)
            if removed is not None:
                removed.batcher.close()  # after the requests that it has

    async def get(self, name: str, version: str | None = None) -> ServedVersion:
        """Return a version, which is loaded if necessary; the default version if it is None.

        Raises
        ------
        ModelNotFound
            If it does not exist.
        HyperplaneError, OSError
            If it cannot be loaded.
        ModelNotLoaded
            If it could not be loaded some seconds ago.
        """
        fixed = self._fixed
        if fixed is not None:
            if name != fixed.name or version not in (None, fixed.version):
                known = f"this server has {fixed.name}, version {fixed.version}"
                raise ModelNotFound(f"model {_title(name, version)} not found; {known}")
            return fixed
        key = (name, version or self._defaults.get(name, ""))
        served = self._loaded.get(key)
        if served is not None:
            self._loaded.move_to_end(key)
            return served
        if self._only not in (None, name):
            raise ModelNotFound(f"model {name} not found; this server has {self._only}")
        missing = self._missing.get((name, version))
        if missing is not None and time.monotonic() < missing[0]:
            raise ModelNotFound(missing[1])
        try:
            return await self._share((name, version), lambda: self._find(name, version))
        except RequestError as error:
            if all(fault.where not in ("name", "version") for fault in error.faults):
                raise  # it exists, and cannot be loaded
            text = f"model {_title(name, version)} not found; {_allowed(error)}"
            if len(self._missing) >= _MAX_MISSING:
                self._missing.clear()
            if len(text) < _MAX_TEXT:
                self._missing[name, version] = (time.monotonic() + _MISSING_SECONDS, text)
            raise ModelNotFound(text) from error

    async def _find(self, name: str, version: str | None) -> ServedVersion:
        if version is None:
            return await self._load_default(name)
        found = await asyncio.to_thread(cast(ModelRegistry, self._registry).get, name, version)
        served = await self._load_version(name, found.version, found.url)
        self._remove_old_versions()
        return served

    async def list_versions(self, name: str) -> list[dict[str, Any]]:
        """Return name, default, framework and columns of all versions of a model.

        Raises
        ------
        ModelNotFound
            If there is no model of that name.
        """
        registry = self._registry
        if registry is None or self._only not in (None, name):
            return [_describe(await self.get(name))]
        try:
            versions = await asyncio.to_thread(registry.list_versions, name)
        except RequestError as error:
            raise ModelNotFound(f"model {name} not found; {_allowed(error)}") from error
        return [
            {
                "version": each.version,
                "default": each.is_default,
                "framework": each.framework,
                "columns": each.columns,
            }
            for each in versions
        ]

    async def follow_defaults(self, on_error: Callable[[], None]) -> None:
        """Load new default versions until the task is cancelled; use them when they are loaded."""
        reported: dict[str, str] = {}
        while self._registry is not None:
            await asyncio.sleep(REFRESH_SECONDS)
            for name in list(self._defaults):
                try:
                    await self._load_default(name)
                    reported.pop(name, None)
                except ModelNotLoaded:
                    on_error()
                except Exception as error:  # noqa: BLE001 - the next version may be a good one
                    on_error()
                    text = f"{name} stays at version {self._defaults[name]}: {error}"
                    if reported.get(name) != text:  # not every two seconds
                        _log.warning("%s", text)
                    reported[name] = text


def _describe(served: ServedVersion) -> dict[str, Any]:
    return {
        "version": served.version,
        "default": True,
        "framework": served.framework,
        "columns": served.predictor.columns,
    }


def _name_of_path(path: str) -> str:
    """Return the name of a model that is in no registry.

    Examples
    --------
    >>> _name_of_path("/data/delays/model.skops"), _name_of_path("/data/delay-2.ubj")
    ('delays', 'delay-2')
    """
    found = PurePosixPath(path)
    name = found.stem if found.suffix.lower() in FRAMEWORKS else found.name
    if name == "model" and found.suffix:
        name = found.parent.name
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name) or "model"


def _title(name: str, version: str | None) -> str:
    return name if version is None else f"{name}, version {version}"


def _allowed(error: RequestError) -> str:
    return "; ".join(f"expected {fault.allowed}" for fault in error.faults)
