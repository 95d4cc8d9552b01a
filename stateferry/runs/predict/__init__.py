"""Predicts how long a run and its outage take, from what earlier runs took."""
