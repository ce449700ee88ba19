"""Models of Vertex AI and their versions: upload, find, list, delete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.vertex_requests import VertexRequests

#: Id of a model, and name of a version: an alias, which a number cannot be.
MODEL_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
VERSION = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
#: A model, with a version or without; Vertex AI numbers models without an id, and all versions.
REFERENCE = re.compile(
    rf"(?P<model>{MODEL_ID.pattern}|[0-9]+)([/@](?P<version>{VERSION.pattern}|[0-9]+))?"
)
#: The alias of the version that is used if none is named.
DEFAULT = "default"
#: The service with the permissions for an upload.
MODEL_SERVICE = CheckedService(
    "aiplatform",
    "Vertex AI",
    "projects.locations.models",
    ("aiplatform.models.get", "aiplatform.models.list", "aiplatform.models.upload"),
)

Object = dict[str, Any]


class VertexModelVersion(NamedTuple):
    """A version of a model.

    Parameters
    ----------
    model : str
        Id of the model.
    version : str
        Number of the version, as text.
    aliases : tuple of str
        Its names; ``"default"`` is among those of one version of each model.
    image, artifact : str
        Its container, and the folder of its files; may be empty.
    created : str
        Time of its upload.
    resource : str
        Name of the version in Vertex AI.
    """

    model: str
    version: str
    aliases: tuple[str, ...]
    image: str
    artifact: str
    created: str
    resource: str


class ModelUpload(NamedTuple):
    """A version that is to be uploaded.

    Parameters
    ----------
    model, version : str
        Id of the model, and name of the version.
    image, artifact : str
        Its container, and the folder of its files in a bucket; empty if the image has them.
    predict_route, health_route : str or None
        Paths of the container for predictions, and for checks of its state.
    port : int or None
        Its port; 8080 for Vertex AI if None.
    """

    model: str
    version: str
    image: str
    artifact: str = ""
    predict_route: str | None = None
    health_route: str | None = None
    port: int | None = None

    def describe(self) -> Object:
        """Return the fields of the model that the request gives."""
        container: Object = {"imageUri": self.image}
        if self.predict_route is not None:
            container["predictRoute"] = self.predict_route
        if self.health_route is not None:
            container["healthRoute"] = self.health_route
        if self.port is not None:
            container["ports"] = [{"containerPort": self.port}]
        fields: Object = {"displayName": self.model, "containerSpec": container}
        return fields | ({"artifactUri": self.artifact} if self.artifact else {})

    def build_request(self, parent: str, *, is_first: bool, is_default: bool) -> Object:
        """Return the body of the upload; ``is_first`` if the model does not exist yet."""
        # The first version of a model is its default one; Vertex AI adds the alias itself.
        default = [DEFAULT] if is_default and not is_first else []
        model = {**self.describe(), "versionAliases": [self.version, *default]}
        if is_first:
            return {"model": model, "modelId": self.model}
        return {"model": model, "parentModel": f"{parent}/models/{self.model}"}


class ModelsApi:
    """Requests for models; raises GcpError."""

    def __init__(self, requests: VertexRequests) -> None:
        self._requests = requests

    def find(self, model: str, version: str | None = None) -> VertexModelVersion | None:
        """Return a version by its number or alias, or the default one; None if there is none."""
        found = self._read(model, version)
        return None if found is None else _parse(found)

    def upload(self, upload: ModelUpload, *, default: bool = False) -> VertexModelVersion | None:
        """Upload a version and return it; None if another one has its name.

        A version with the same name, container and files is not uploaded again.
        """
        found = self._read(upload.model, upload.version)
        if found is None:
            self._create(upload, default=default)
            found = self._read(upload.model, upload.version)
        if found is None or not _contains(found, upload.describe()):
            return None
        version = _parse(found)
        if default and DEFAULT not in version.aliases:
            merged = self._requests.repeat(
                "models.mergeVersionAliases",
                name=version.resource,
                body={"versionAliases": [DEFAULT]},
            )
            version = _parse(merged)
        return version

    def list_models(self) -> list[VertexModelVersion]:
        """Return the default version of each model."""
        parent = self._requests.session.location()
        return list(map(_parse, self._requests.list_all("models.list", "models", parent=parent)))

    def list_versions(self, model: str) -> list[VertexModelVersion]:
        """Return the versions of a model, by their numbers; raise GcpRequestError without any."""
        name = self._name(model)
        found = self._requests.list_all("models.listVersions", "models", name=name)
        return sorted(map(_parse, found), key=lambda each: int(each.version or 0))

    def delete(self, version: VertexModelVersion, *, whole: bool) -> None:
        """Delete a version, or its whole model, and wait for the end."""
        if whole:
            self._requests.delete("models.delete", name=self._name(version.model))
        else:
            self._requests.delete("models.deleteVersion", name=version.resource)

    def _create(self, upload: ModelUpload, *, default: bool) -> None:
        parent = self._requests.session.location()
        is_first = self._read(upload.model, None) is None
        operation, _ = self._requests.create(
            "models.upload",
            lambda: self._read(upload.model, upload.version),
            parent=parent,
            body=upload.build_request(parent, is_first=is_first, is_default=default),
        )
        if operation is not None:
            self._requests.wait(operation)

    def _read(self, model: str, version: str | None) -> Object | None:
        return self._requests.read("models.get", name=self._name(model, version))

    def _name(self, model: str, version: str | None = None) -> str:
        suffix = f"@{version}" if version else ""
        return f"{self._requests.session.location()}/models/{model}{suffix}"


def _contains(found: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Return whether a model has the given fields, also inside of others."""
    for name, value in fields.items():
        other = found.get(name)
        if isinstance(value, Mapping):
            if not isinstance(other, Mapping) or not _contains(other, value):
                return False
        elif isinstance(value, str):
            if str(other or "").rstrip("/") != value.rstrip("/"):
                return False
        elif other != value:
            return False
    return True


def _parse(model: Mapping[str, Any]) -> VertexModelVersion:
    name = str(model.get("name", "")).partition("@")[0]
    version = str(model.get("versionId", ""))
    return VertexModelVersion(
        name.rpartition("/")[2],
        version,
        tuple(model.get("versionAliases", ())),
        str(model.get("containerSpec", {}).get("imageUri", "")),
        str(model.get("artifactUri", "")),
        str(model.get("versionCreateTime") or model.get("createTime", "")),
        f"{name}@{version}",
    )
