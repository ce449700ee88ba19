"""Estimators: networks that the workers of a cluster train together."""
