"""Inventories: of one bookie's disks, of many bookies' mounted disks, of running bookies; and those of a folder."""
