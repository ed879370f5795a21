"""ZooKeeper's own files, read without a server: snapshots, transaction logs, and what they come to together."""
