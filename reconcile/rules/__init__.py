"""Pure functions from tables to findings."""
