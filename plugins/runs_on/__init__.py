"""Where jobs live: how the tasks of a cut-over stop one and start another there."""
