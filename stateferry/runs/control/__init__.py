"""What people do to runs: they reject, roll back and clean up."""
