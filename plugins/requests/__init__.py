"""What people ask for: the forms, the configured jobs, and the plans that are made of them."""
