"""How keyed state is spread over key groups and subtasks: where a key is, and which layouts spread it more evenly."""
