"""CSV and other delimited text."""
