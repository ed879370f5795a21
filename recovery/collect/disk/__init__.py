"""A bookie's disks: its configuration, its folders, and how their files are read."""
