"""Ledgers' entries copied from bookies into an archive, marked as archived, proven and read from it."""
