"""Backups of metadata: followed, listed, verified, pruned, and opened as stores."""
