"""Tools of the repository; none of them is installed."""
