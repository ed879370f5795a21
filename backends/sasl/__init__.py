"""SASL, for ZooKeeper and bookies: proofs of who one is, by a password or a Kerberos ticket; knows no connections."""
