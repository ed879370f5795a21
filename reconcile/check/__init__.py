"""Read-only checks of a cluster: before a restore, and after it."""
