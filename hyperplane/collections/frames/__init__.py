"""Implementation of ``hyperplane.dataframe``."""
