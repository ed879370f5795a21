"""etcd as a metadata store: the only package that knows grpc and etcd3."""
