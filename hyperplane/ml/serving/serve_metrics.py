"""Metrics of a model server, in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hyperplane.core.optional import need

#: Folder of the metrics of several processes; prometheus_client reads it when it is imported.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServeMetrics:
    """Counters and histograms of one server process."""

    def __init__(self) -> None:
        client = need("prometheus_client", "serve")
        self._client, self._registry = client, client.CollectorRegistry()
        self.requests = client.Counter(
            "hyperplane_serve_requests",
            "Requests for predictions, by model, version and HTTP status.",
            ["model", "version", "code"],
            registry=self._registry,
        )
        self.in_progress = client.Gauge(
            "hyperplane_serve_requests_in_progress",
            "Requests whose instances wait for the model or are predicted.",
            ["model"],
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.refused = client.Counter(
            "hyperplane_serve_refused_instances",
            "Instances that the model refused.",
            ["model"],
            registry=self._registry,
        )
        self.seconds = client.Histogram(
            "hyperplane_serve_request_seconds",
            "Seconds from the first byte of the body to the response.",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._sizes = client.Histogram(
            "hyperplane_serve_batch_instances",
            "Instances that are predicted together.",
            ["model"],
            buckets=_SIZES,
            registry=self._registry,
        )
        self.registry_errors = client.Counter(
            "hyperplane_serve_registry_errors",
            "Failed attempts to load the default version of a model.",
            registry=self._registry,
        )

    def observe_batches(self, name: str) -> Callable[[int], None]:
        """Return a function that records the size of a batch of a model."""
        observe: Callable[[int], None] = self._sizes.labels(name).observe
        return observe

    def render(self) -> bytes:
        """Return the metrics of all processes of the server as text."""
        registry: Any = self._registry
        if os.environ.get(FOLDER_VARIABLE):
            multiprocess = need("prometheus_client.multiprocess", "serve")
            registry = self._client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        text: bytes = self._client.generate_latest(registry)
        return text
