"""The answers of the service: the same methods over gRPC and HTTP, the page, the metrics."""
