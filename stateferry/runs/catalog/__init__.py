"""The database that all runs share: leases of jobs and publications."""
