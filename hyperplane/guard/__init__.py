"""What protects a running cluster."""
