"""Hosts that are reached through SSH."""
