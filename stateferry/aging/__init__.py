"""How old the entries of each state with time to live are, and what will go when."""
