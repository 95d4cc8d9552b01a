"""The plan of a run: what a person asks for, and the errors of a wrong plan."""
