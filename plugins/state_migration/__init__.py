"""The parts of the DAGs that migrate state."""
