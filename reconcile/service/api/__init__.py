"""The answers of the service: the same methods over gRPC and HTTP, the page, the metrics."""

import backends as _backends  # noqa: F401 - its setting of grpc, before grpc is loaded
