"""One bookie's disks into an inventory dataset: `pipeline.collect`."""
