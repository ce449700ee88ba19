"""What a job does: pipelines and their steps, read and checked before anything runs."""
