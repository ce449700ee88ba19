"""Orca's package of estimators of compiled Keras models."""
