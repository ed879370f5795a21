"""A bookie's disks into an inventory dataset: `bookie.collect`."""
