"""Files of a job for another system: Slurm, Kubernetes, cloud services, Step Functions."""
