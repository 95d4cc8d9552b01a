"""Single values: decoded, encoded, and told as JSON."""
