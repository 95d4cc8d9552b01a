"""What makes a local session start fast, and what is looked at before it starts."""
