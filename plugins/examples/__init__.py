"""Examples for teams: a DAG of their own, and tasks of their own that stop and start a job. Folders link to them."""
