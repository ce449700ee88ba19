"""Training programs that run as several processes: their roles, variables and local execution."""
