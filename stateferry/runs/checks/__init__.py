"""Holds a plan against a savepoint's headers and against the disks, before anything is read or written."""
