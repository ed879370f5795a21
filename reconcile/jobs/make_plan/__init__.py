"""Inventories, the store and snapshots into a plan: what is asked, a task of each bucket range, and the whole plan."""
