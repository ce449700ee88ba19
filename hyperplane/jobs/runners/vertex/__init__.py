"""Runner for Vertex AI custom jobs."""
