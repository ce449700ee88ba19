"""Prediction of files and dataframes with saved models, and the registry of models."""
