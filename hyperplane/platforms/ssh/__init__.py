"""SSH: connections to hosts, and processes on them."""
