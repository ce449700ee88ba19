"""Kubernetes: requests to its API server, manifests, and states of pods and Jobs.

``api``
    Requests to the API server, each with a time limit. No other module uses private names of kr8s.
    ``errors`` has the errors of requests; ``kubeconfig`` finds the configuration.
``objects``, ``pods``, ``staged_files``, ``batch_job``, ``manifest_yaml``
    Manifests: labels and Secrets, containers and their privileges, files copied into pods, Jobs and
    CronJobs, and manifests as YAML.
``job_watcher``
    Creates, watches and deletes many Jobs with few requests.
``pod_status``
    Reasons why pods wait, and how containers and Jobs ended.
``port_forward``
    Ports of this machine that lead to a service.
"""
