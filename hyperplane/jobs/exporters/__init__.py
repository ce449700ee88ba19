"""Files of a job for another system: Slurm, Kubernetes, AWS Batch, Amazon States Language."""
