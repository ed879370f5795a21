"""What the service answers: the same methods over gRPC and HTTP, the page, the figures."""
