"""The API of Kubernetes for clusters and jobs, of which it imports neither.

``api``
    Requests to the API server, each with a time limit; the only module that uses private names of
    kr8s. ``errors`` has their errors, ``kubeconfig`` the configuration that they use.
``objects``, ``pods``, ``staged_files``, ``batch_job``, ``manifest_yaml``
    Manifests: labels and Secrets, containers and rights, files of this machine, Jobs and CronJobs,
    and their text.
``job_watcher``
    Create, watch and delete many Jobs with few requests.
``pod_status``
    Why a pod waits, whether it will ever run, and how it ended.
``port_forward``
    Ports of this machine that lead to a service.
"""
