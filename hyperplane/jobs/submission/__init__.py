"""Submissions: checks of options and parameters, the environment and the stored settings."""
