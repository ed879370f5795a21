"""A bookie's disks: its configuration, its folders, and the paced reading of their files."""
