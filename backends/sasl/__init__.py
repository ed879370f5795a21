"""SASL, for ZooKeeper and bookies: proofs of an identity by a password or a Kerberos ticket, without connections."""
