"""Backups of metadata: bases and sealed changes in one chain; written, read, and any point in time of them."""
