"""Verification of deletes: the evidence, every check of it in columns, and the verdicts."""
