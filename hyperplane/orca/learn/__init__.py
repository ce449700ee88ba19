"""Orca's package of estimators."""
