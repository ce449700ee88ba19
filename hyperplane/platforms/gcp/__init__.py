"""Google Cloud: Vertex AI custom jobs, their logs in Cloud Logging, and files in Cloud Storage."""
