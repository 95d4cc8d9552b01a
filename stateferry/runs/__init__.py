"""Runs: their plan, lease, publication, folder and report."""
