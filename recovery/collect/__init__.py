"""One bookie's disks into an inventory."""
