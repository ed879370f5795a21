"""ZooKeeper's own files, read without a server: snapshots, transaction logs, and the state from both."""
