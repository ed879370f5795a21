"""Bytes that bookies and stores hold, turned into facts, and facts into ledger metadata."""

__version__ = "0.1.0"
