"""Orphans looked for as a job: the store listed twice, references, inventories, earlier copies of the store."""
