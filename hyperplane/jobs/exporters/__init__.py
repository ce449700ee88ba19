"""Files of a job for another system: Slurm, Kubernetes, AWS Batch, Vertex AI and so on."""
