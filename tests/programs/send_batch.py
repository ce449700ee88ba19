"""Send many jobs with GraphQL as published programs do, with a limited number in flight.

The token is in the address: nothing else differs from a program of the platform.
"""

import json
import os
import sys
import time
import uuid

import requests

endpoint = os.environ["HYPERPLANE_GRAPHQL_URL"]
total, at_most, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

MUTATION = """
mutation {
    createPipelineJobWithAlerting(
        input: {
            jobName: "batch-%(id)s",
            jobType: "lite",
            pipelineYamlPath: "batch/run.sh",
            noHyperplaneCommands: false,
            workingDir: "/tmp/git/monorepo/",
            debuggable: false,
            notificationsEnabled: false,
            notificationTargetIds: [],
            timeout: 86400,
            activeTimeout: 86400,
            maxRetries: 1,
            gitServerName: "examples",
            noGitInit: false,
            commitId: "",
            hyperplaneUserEmail: "ada@example.org",
            serviceAccountName: "",
            pipelineType: "BASH",
            branchName: "",
            parameters: { create: [ { key: "FILE_ID", value: "%(id)s" } ] }
        }
    ) {
        id
        jobName
        jobType
        pipelineYamlPath
        workingDir
        commitId
        branchName
        debuggable
        parameters {
            key
            value
        }
    }
}
"""
COUNT = """
query {
    COUNT_%(stat)s_T_10M: getJobStat(
        stat: COUNT_%(stat)s
        timeFrame: T_10M
    )
}
"""


def send(query):
    """Send a query; the program ends with an error if it has one."""
    response = requests.post(
        endpoint,
        headers={"Content-Type": "application/json"},
        data=json.dumps({"query": query}),
        timeout=150,
    )
    response.raise_for_status()
    document = response.json()
    if document.get("errors"):
        sys.exit(str(document["errors"]))
    return document["data"]


sent = most = 0
while sent < total:
    counts = [send(COUNT % {"stat": stat}) for stat in ("IN_PROGRESS", "PENDING")]
    waiting = sum(value for count in counts for value in count.values())
    most = max(most, waiting)
    for _ in range(min(at_most - waiting, total - sent)):
        send(MUTATION % {"id": str(uuid.uuid4())[:18]})
        sent += 1
    time.sleep(pause)
json.dump({"sent": sent, "most": most}, sys.stdout)
