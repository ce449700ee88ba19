"""GraphQL requests of published programs to a server of ``hyperplane ui``."""

from __future__ import annotations

import json
from typing import Any

import requests
from ui_server import LIMIT, UiServer

CREATE = """
mutation createPipelineJobWithAlerting(
  $jobName: String!, $type: String!, $imageHash: String, $noHyperplaneCommands: Boolean,
  $debuggable: Boolean!, $notificationsEnabled: Boolean, $notificationTargetIds: [String!],
  $timeout: Int!, $activeTimeout: Int, $maxRetries: Int!, $schedule: String, $timezone: String,
  $yamlPath: String!, $workingDir: String, $noGitInit: Boolean, $runParallel: Boolean,
  $hyperplaneVCServerId: HyperplaneVCServerWhereUniqueInput,
  $billingProjectId: BillingProjectWhereUniqueInput,
  $hyperplaneSecrets: [HyperplaneSecretWhereUniqueInput!], $branchName: String,
  $commitId: String, $parameters: ParameterCreateNestedManyWithoutPipelineJobInput,
  $hyperplaneUserId: String!, $hyperplaneUserEmail: String!, $group: String, $podSpec: String,
  $hyperplaneServiceAccountId: HyperplaneServiceAccountWhereUniqueInput,
  $cloudSqlProxyEnabled: Boolean, $hyperplaneCloudSqlProxyId: String, $pipelineType: String,
  $customMessage: String
) {
  createPipelineJobWithAlerting(
    input: {
      jobName: $jobName, jobType: $type, imageHash: $imageHash,
      noHyperplaneCommands: $noHyperplaneCommands, debuggable: $debuggable,
      notificationsEnabled: $notificationsEnabled, runParallel: $runParallel,
      notificationTargetIds: $notificationTargetIds, timeout: $timeout,
      activeTimeout: $activeTimeout, maxRetries: $maxRetries, schedule: $schedule,
      pipelineYamlPath: $yamlPath, workingDir: $workingDir, noGitInit: $noGitInit,
      hyperplaneVCServer: {connect: $hyperplaneVCServerId},
      billingProject: {connect: $billingProjectId},
      hyperplaneSecrets: {connect: $hyperplaneSecrets}, branchName: $branchName,
      commitId: $commitId, parameters: $parameters, timezone: $timezone,
      hyperplaneUser: {connect: {id: $hyperplaneUserId}},
      hyperplaneUserEmail: $hyperplaneUserEmail, group: $group, podSpec: $podSpec,
      hyperplaneServiceAccount: {connect: $hyperplaneServiceAccountId},
      cloudSqlProxyEnabled: $cloudSqlProxyEnabled,
      hyperplaneCloudSqlProxyId: $hyperplaneCloudSqlProxyId, pipelineType: $pipelineType,
      customMessage: $customMessage
    }
  ) {
    id pinned pipelineYamlPath jobName schedule status statusReason output startTime
    completionTime daskDashboardUrl dashboardPrefix timeout timezone outputNotebooksPath
    activeTimeout maxRetries exposedPort jobType noVSRewrite minReplicas maxHpaRange debuggable
    notificationsEnabled notificationTargets { notificationTarget { email } } sshCommand imageHash
    noGitInit branchName commitId branchNameOrCommit hyperplaneUserEmail displayedOwner
    noHyperplaneCommands group hyperplaneServiceAccountId grafanaLink parameters { key value }
    userServiceSubdomain pipelineType
  }
}
"""
#: Variables that a program of the platform sends with it.
VARIABLES: dict[str, Any] = {
    "jobName": "orders-eu", "type": "basic", "imageHash": "", "noHyperplaneCommands": False,
    "debuggable": False, "notificationsEnabled": False, "timeout": 14400, "activeTimeout": 14400,
    "maxRetries": 0, "yamlPath": "load.sh", "noGitInit": False, "hyperplaneSecrets": [],
    "hyperplaneVCServerId": {"id": "7bc7"}, "branchName": "main", "commitId": "",
    "parameters": {"create": []}, "hyperplaneUserId": "048b",
    "hyperplaneUserEmail": "ada@example.org", "group": "", "cloudSqlProxyEnabled": False,
    "pipelineType": "BASH",
}  # fmt: skip


def address_of(server: UiServer) -> dict[str, Any]:
    """Return the document of the file for programs."""
    return json.loads(server.graphql_file.read_text())


def post(
    server: UiServer, query: Any, variables: Any = None, **headers: str | None
) -> requests.Response:
    """Send a query to the address with the token; underscores of headers are hyphens."""
    given = {"content-type": "application/json", **headers}
    sent = {name.replace("_", "-"): value for name, value in given.items()}
    document = {"query": query, "variables": variables}
    return requests.post(
        address_of(server)["url"], headers=sent, data=json.dumps(document), timeout=LIMIT
    )


def ask(server: UiServer, query: str, variables: Any = None) -> dict[str, Any]:
    """Return the data of a response without errors."""
    response = post(server, query, variables)
    assert response.status_code == 200, response.text
    document = response.json()
    assert "errors" not in document, document
    return document["data"]


def errors_of(server: UiServer, query: Any, variables: Any = None) -> list[dict[str, Any]]:
    """Return the errors of a response that is one of GraphQL."""
    response = post(server, query, variables)
    assert response.status_code == 200, response.text
    return response.json()["errors"]


def error_of(server: UiServer, query: Any, variables: Any = None) -> str:
    """Return the messages of the errors."""
    return "\n".join(each["message"] for each in errors_of(server, query, variables))


def create(server: UiServer, **fields: Any) -> dict[str, Any]:
    """Submit a job with variables of a published program, some of them replaced."""
    return ask(server, CREATE, {**VARIABLES, **fields})["createPipelineJobWithAlerting"]
