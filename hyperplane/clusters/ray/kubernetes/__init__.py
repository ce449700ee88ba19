"""The engine ``ray:kubernetes``: head and worker nodes in pods that the operator KubeRay starts."""
