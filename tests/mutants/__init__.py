"""Mutation testing of the validation: small faults in the code that checks results, each of which tests must see.

`make test-mutants` draws a sample of all faults that `mutations.py` knows, and says which of them no test has seen.
"""
