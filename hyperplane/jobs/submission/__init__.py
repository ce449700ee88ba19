"""Submissions: checks of options and parameters, and what is stored with a job."""
