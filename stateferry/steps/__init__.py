"""The steps of a run, from the snapshot to the cut-over, and the pipeline that takes them in order."""
