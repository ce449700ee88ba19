"""Runner for AWS Batch."""
