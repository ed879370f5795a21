"""Orphans searched for as a job: the store listed twice, references, inventories, earlier copies of the store."""
