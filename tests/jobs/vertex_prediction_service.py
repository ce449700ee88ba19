"""Vertex AI for tests: models, endpoints with long-running operations, and batch predictions.

A prediction is the sum of an instance, or its text in capital letters. The rules are those of the
documentation: an alias has one version, requests for predictions add up to 100 %, and what is
deployed cannot be deleted.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google_service import NUMBER, REGION, Action, Object, Refused, Request, now
from vertex_service import VertexService

PARENT = f"projects/{NUMBER}/locations/{REGION}"


class PredictionService(VertexService):
    """The server; ``waiting_for`` also holds operations and jobs.

    Attributes
    ----------
    models : dict of str to dict
        Number of a version -> the version, by the id of its model.
    endpoints, predictions : dict of str to dict
        Endpoints by their ids, and jobs by their names.
    failure : str
        Message with which operations and jobs fail; empty if they succeed.
    deploys_slowly : bool
        Whether deployments take until they are cancelled.
    """

    def __init__(self, folder: Path) -> None:
        self.models: dict[str, dict[str, Object]] = {}
        self.endpoints: dict[str, Object] = {}
        self.predictions: dict[str, Object] = {}
        self.failure = ""
        self.deploys_slowly = False
        self._deployments: set[str] = set()
        self._operations: dict[str, tuple[Object, Callable[[], Object]]] = {}
        super().__init__(folder)

    def clear(self) -> None:
        """Forget all objects, operations, requests and faults."""
        with self._lock:
            for each in (self.models, self.endpoints, self.predictions, self._operations):
                each.clear()
            self.requests.clear()
            self.faults.clear()
            self.missing, self.waiting_for, self.failure = set(), "", ""
            self.deploys_slowly = False

    def _actions(self) -> dict[str, Action]:
        return {
            **super()._actions(),
            "models.upload": self._upload,
            "models.get": lambda request: self._version(request)[1],
            "models.list": self._list_models,
            "models.listVersions": self._list_versions,
            "models.mergeVersionAliases": self._merge,
            "models.delete": self._delete_model,
            "models.deleteVersion": self._delete_model,
            "endpoints.create": self._create_endpoint,
            "endpoints.get": self._endpoint,
            "endpoints.list": lambda _: {"endpoints": list(self.endpoints.values())},
            "endpoints.deployModel": self._deploy,
            "endpoints.undeployModel": self._undeploy,
            "endpoints.delete": self._delete_endpoint,
            "endpoints.predict": self._predict,
            "operations.get": lambda request: self._operations[request.values["name"]][0],
            "operations.list": self._list_operations,
            "operations.cancel": self._cancel_operation,
            "batchPredictionJobs.create": self._create_prediction,
            "batchPredictionJobs.get": self._prediction,
            "batchPredictionJobs.list": self._list_predictions,
            "batchPredictionJobs.cancel": self._cancel_prediction,
        }

    def _drive(self) -> None:
        """End operations, and run jobs."""
        while not self._closing.wait(0.02):
            with self._lock:
                if self.waiting_for:
                    continue
                for name, (operation, action) in self._operations.items():
                    is_held = self.deploys_slowly and name in self._deployments
                    if not operation.get("done") and not is_held:
                        self._end_operation(operation, action)
                for job in self.predictions.values():
                    self._advance_prediction(job)

    def _begin(self, resource: str, action: Callable[[], Object]) -> Object:
        operation = {"name": f"{resource}/operations/{uuid.uuid4().int % 10**19}"}
        self._operations[operation["name"]] = (operation, action)
        return operation

    def _end_operation(self, operation: Object, action: Callable[[], Object]) -> None:
        if self.failure:
            operation |= {"done": True, "error": {"code": 9, "message": self.failure}}
            return
        try:
            operation |= {"done": True, "response": action()}
        except KeyError as error:  # another operation has deleted it
            operation |= {"done": True, "error": {"code": 5, "message": f"{error} was not found"}}

    def _list_operations(self, request: Request) -> Object:
        prefix = f"{PARENT}/{request.values['name'].split('/', 4)[4]}/"
        found = [each for each, _ in self._operations.values() if each["name"].startswith(prefix)]
        return {"operations": found}

    def _cancel_operation(self, request: Request) -> Object:
        operation, _ = self._operations[request.values["name"]]
        if not operation.get("done"):
            operation |= {"done": True, "error": {"code": 1, "message": "cancelled"}}
        return {}

    # Models

    def _upload(self, request: Request) -> Object:
        body, model = request.body, dict(request.body["model"])
        name = body.get("modelId") or body["parentModel"].rpartition("/")[2]
        if "modelId" in body and name in self.models:
            raise Refused(409, "The model exists.")
        if "parentModel" in body and name not in self.models:
            raise Refused(404, "The parent model does not exist.")

        def finish() -> Object:
            versions = self.models.setdefault(name, {})
            number = str(len(versions) + 1)
            aliases = [*model["versionAliases"], *(["default"] if not versions else [])]
            versions[number] = {
                **model, "name": f"{PARENT}/models/{name}", "versionId": number,
                "versionAliases": [], "versionCreateTime": now(),
            }  # fmt: skip
            self._move(name, number, aliases)
            return {"model": f"{PARENT}/models/{name}", "modelVersionId": number}

        return self._begin(f"{PARENT}/models/{name}", finish)

    def _move(self, name: str, number: str, aliases: list[str]) -> None:
        for version in self.models[name].values():
            kept = [each for each in version["versionAliases"] if each not in aliases]
            version["versionAliases"] = kept
        self.models[name][number]["versionAliases"] += aliases

    def _version(self, request: Request, name: str = "") -> tuple[str, Object]:
        """Return the id of a model, and the version that a request names."""
        text = (name or request.values["name"]).rpartition("/")[2]
        model, _, wanted = text.partition("@")
        for number, version in self.models.get(model, {}).items():
            if (wanted or "default") in (number, *version["versionAliases"]):
                return model, version
        raise Refused(404, f"The model {text} does not exist.")

    def _list_models(self, request: Request) -> Object:
        self._check_parent(request)
        default = [
            version
            for versions in self.models.values()
            for version in versions.values()
            if "default" in version["versionAliases"]
        ]
        begin = int(request.query.get("pageToken", ["0"])[0])
        page: Object = {"models": default[begin : begin + 1]}
        return {**page, "nextPageToken": str(begin + 1)} if default[begin + 1 :] else page

    def _list_versions(self, request: Request) -> Object:
        model, _ = self._version(request)
        return {
            "models": [
                {**version, "name": f"{version['name']}@{number}"}
                for number, version in reversed(self.models[model].items())
            ]
        }

    def _merge(self, request: Request) -> Object:
        model, version = self._version(request)
        self._move(model, version["versionId"], request.body["versionAliases"])
        return version

    def _delete_model(self, request: Request) -> Object:
        model, version = self._version(request)
        whole = request.method.short == "models.delete"
        used = {
            each["model"] for point in self.endpoints.values() for each in point["deployedModels"]
        }
        if any(name.partition("@")[0].endswith(f"/{model}") for name in used):
            raise Refused(400, "The model is deployed.")
        if not whole and "default" in version["versionAliases"]:
            raise Refused(400, "The default version cannot be deleted.")

        def finish() -> Object:
            if whole:
                del self.models[model]
            else:
                del self.models[model][version["versionId"]]
            return {}

        return self._begin(f"{PARENT}/models/{model}", finish)

    # Endpoints

    def _endpoint(self, request: Request) -> Object:
        path = request.values.get("name") or request.values["endpoint"]
        name = path.rpartition("/")[2]
        if name not in self.endpoints:
            raise Refused(404, f"The endpoint {name} does not exist.")
        return self.endpoints[name]

    def _create_endpoint(self, request: Request) -> Object:
        self._check_parent(request)
        [name] = request.query["endpointId"]
        if name in self.endpoints:
            raise Refused(409, "The endpoint exists.")

        def finish() -> Object:
            resource = f"{PARENT}/endpoints/{name}"
            self.endpoints[name] = {
                **request.body, "name": resource, "deployedModels": [], "trafficSplit": {}
            }  # fmt: skip
            return {"name": resource}

        return self._begin(f"{PARENT}/endpoints/{name}", finish)

    def _deploy(self, request: Request) -> Object:
        endpoint, deployed = self._endpoint(request), request.body["deployedModel"]
        _, version = self._version(request, deployed["model"])
        ids = [each["id"] for each in endpoint["deployedModels"]]
        if deployed["id"] in ids:
            raise Refused(409, "The deployment exists.")
        split = {
            deployed["id"] if number == "0" else number: percent
            for number, percent in request.body["trafficSplit"].items()
        }
        _check_split(split, [*ids, deployed["id"]])

        def finish() -> Object:
            number = version["versionId"]
            endpoint["deployedModels"].append({**deployed, "modelVersionId": number})
            endpoint["trafficSplit"] = split
            return {"deployedModel": deployed}

        operation = self._begin(endpoint["name"], finish)
        self._deployments.add(operation["name"])
        return operation

    def _undeploy(self, request: Request) -> Object:
        endpoint, number = self._endpoint(request), request.body["deployedModelId"]
        others = [each for each in endpoint["deployedModels"] if each["id"] != number]
        if len(others) == len(endpoint["deployedModels"]):
            raise Refused(400, "There is no such deployment.")
        split = request.body.get("trafficSplit", {} if not others else endpoint["trafficSplit"])
        if others:
            _check_split(split, [each["id"] for each in others])

        def finish() -> Object:
            endpoint["deployedModels"], endpoint["trafficSplit"] = others, split
            return {}

        return self._begin(endpoint["name"], finish)

    def _delete_endpoint(self, request: Request) -> Object:
        endpoint = self._endpoint(request)
        name = endpoint["name"].rpartition("/")[2]
        if endpoint["deployedModels"]:
            raise Refused(400, "The endpoint has deployed models.")

        def finish() -> Object:
            self.endpoints.pop(name, None)
            return {}

        return self._begin(endpoint["name"], finish)

    def _predict(self, request: Request) -> Object:
        endpoint = self._endpoint(request)
        if not endpoint["deployedModels"]:
            raise Refused(400, "No model is deployed.")
        return {"predictions": [_predict_one(each) for each in request.body["instances"]]}

    # Batch predictions

    def _create_prediction(self, request: Request) -> Object:
        self._check_parent(request)
        self._version(request, request.body["model"])
        name = f"{PARENT}/batchPredictionJobs/{uuid.uuid4().int % 10**19}"
        state = {"name": name, "state": "JOB_STATE_PENDING", "createTime": now()}
        self.predictions[name] = {**request.body, **state}
        return self.predictions[name]

    def _prediction(self, request: Request) -> Object:
        if request.values["name"] not in self.predictions:
            raise Refused(404, "The BatchPredictionJob does not exist.")
        return self.predictions[request.values["name"]]

    def _list_predictions(self, request: Request) -> Object:
        self._check_parent(request)
        [clause] = request.query.get("filter", [""])
        found = [
            job
            for job in self.predictions.values()
            if clause in ("", f'display_name="{job["displayName"]}"')
        ]
        return {"batchPredictionJobs": found}

    def _cancel_prediction(self, request: Request) -> Object:
        job = self._prediction(request)
        if job["state"] not in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING"):
            raise Refused(400, "BatchPredictionJob has ended.")
        job |= {"state": "JOB_STATE_CANCELLED", "endTime": now()}
        return {}

    def _advance_prediction(self, job: Object) -> None:
        if job["state"] == "JOB_STATE_PENDING":
            job |= {"state": "JOB_STATE_RUNNING", "startTime": now()}
        elif job["state"] == "JOB_STATE_RUNNING" and self.failure:
            error = {"code": 3, "message": self.failure}
            job |= {"state": "JOB_STATE_FAILED", "error": error, "endTime": now()}
        elif job["state"] == "JOB_STATE_RUNNING":
            self._write_predictions(job)
            job |= {"state": "JOB_STATE_SUCCEEDED", "endTime": now()}

    def _write_predictions(self, job: Object) -> None:
        lines = [
            json.dumps({"instance": json.loads(line), "prediction": _predict_one(json.loads(line))})
            for url in job["inputConfig"]["gcsSource"]["uris"]
            for file in sorted(self.buckets.glob(url.removeprefix("gs://")))
            for line in file.read_text().splitlines()
        ]
        base = job["outputConfig"]["gcsDestination"]["outputUriPrefix"].rstrip("/")
        output = f"{base}/prediction-{job['displayName']}"
        folder = self.buckets / output.removeprefix("gs://")
        folder.mkdir(parents=True)
        (folder / "prediction.results-00000-of-00001").write_text("\n".join(lines))
        counts = {"successfulCount": str(len(lines)), "failedCount": "0"}
        job |= {"outputInfo": {"gcsOutputDirectory": output}, "completionStats": counts}


def _check_split(split: dict[str, int], ids: list[str]) -> None:
    if sum(split.values()) != 100 or not set(split) <= set(ids):
        raise Refused(400, f"The traffic split {split} is not one of {ids}.")


def _predict_one(instance: Any) -> Any:
    return instance.upper() if isinstance(instance, str) else sum(instance)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[PredictionService]:
    """Run a server."""
    service = PredictionService(folder)
    try:
        yield service
    finally:
        service.close()
