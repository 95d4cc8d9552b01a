"""The report of a run, what it rests on, and what a person decides by it."""
