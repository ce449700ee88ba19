"""Runner for Amazon EMR."""
