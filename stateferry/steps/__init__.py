"""The steps of a run, from the snapshot to the tables, and the pipeline that takes them in order."""
