"""The folder of a run: what it keeps of its state, its steps and their facts."""
