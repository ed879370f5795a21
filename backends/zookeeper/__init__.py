"""ZooKeeper as a metadata store; the only room that knows kazoo, and `kazoo_client` alone knows its private parts."""
