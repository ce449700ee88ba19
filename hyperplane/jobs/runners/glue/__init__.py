"""Runner for AWS Glue."""
