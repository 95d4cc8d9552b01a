"""Pages for a browser, from the facts that runs keep: HTML without scripts and without content from elsewhere."""
