"""Ledgers that somebody deleted, taken back from what the store's history has of them: a plan, without Spark."""
