"""Deletes as jobs: requested, verified, purged, taken back, confirmed; and what else our own root holds."""
