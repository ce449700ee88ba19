"""Runner for Cloud Run jobs."""
