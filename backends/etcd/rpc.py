"""etcd's services as method paths over our own messages; in place of `etcd3.etcdrpc`, which needs protobuf 3.

The names of the stubs are those that the package etcd3 asks for when it makes a client.

Source: etcd-io/etcd v3.5, api/etcdserverpb/rpc.proto: the services.
"""

from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from backends.etcd._pb.rpc_pb2 import (
    AuthenticateRequest,
    AuthenticateResponse,
    CompactionRequest,
    CompactionResponse,
    Compare,
    DeleteRangeRequest,
    DeleteRangeResponse,
    Event,
    KeyValue,
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    PutRequest,
    PutResponse,
    RangePage,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    StatusRequest,
    StatusResponse,
    TxnRequest,
    TxnResponse,
    WatchCancelRequest,
    WatchCreateRequest,
    WatchPage,
    WatchRequest,
    WatchResponse,
)

__all__ = [
    "AuthStub",
    "AuthenticateRequest",
    "ClusterStub",
    "CompactionRequest",
    "Compare",
    "DeleteRangeRequest",
    "Event",
    "KVStub",
    "KeyValue",
    "LeaseGrantRequest",
    "LeaseKeepAliveRequest",
    "LeaseRevokeRequest",
    "LeaseStub",
    "MaintenanceStub",
    "PutRequest",
    "RangePage",
    "RangeRequest",
    "RangeResponse",
    "RequestOp",
    "ResponseHeader",
    "StatusRequest",
    "StatusResponse",
    "TxnRequest",
    "TxnResponse",
    "WatchCancelRequest",
    "WatchCreateRequest",
    "WatchPage",
    "WatchRequest",
    "WatchResponse",
    "WatchStub",
]

_METHODS: Final[dict[str, dict[str, tuple[type[Message], type[Message]]]]] = {
    "KV": {
        "Range": (RangeRequest, RangeResponse),
        "RangePage": (RangeRequest, RangePage),
        "Put": (PutRequest, PutResponse),
        "DeleteRange": (DeleteRangeRequest, DeleteRangeResponse),
        "Txn": (TxnRequest, TxnResponse),
        "Compact": (CompactionRequest, CompactionResponse),
    },
    "Watch": {"Watch": (WatchRequest, WatchResponse), "WatchPage": (WatchRequest, WatchPage)},
    "Lease": {
        "LeaseGrant": (LeaseGrantRequest, LeaseGrantResponse),
        "LeaseKeepAlive": (LeaseKeepAliveRequest, LeaseKeepAliveResponse),
        "LeaseRevoke": (LeaseRevokeRequest, LeaseRevokeResponse),
    },
    "Maintenance": {"Status": (StatusRequest, StatusResponse)},
    "Auth": {"Authenticate": (AuthenticateRequest, AuthenticateResponse)},
    "Cluster": {},
}
_PAGES: Final = {"RangePage": "Range", "WatchPage": "Watch"}
"""Methods with answers that keep keys as bytes, and their names on the server."""
_STREAMS: Final = frozenset({"Watch", "WatchPage", "LeaseKeepAlive"})


def _stub(service: str) -> Callable[[grpc.Channel], Any]:
    """Return a function that makes an object with the methods of one service."""

    def make(channel: grpc.Channel) -> Any:  # noqa: ANN401 - its methods are made here
        methods = {}
        for name, (request, response) in _METHODS[service].items():
            kind = channel.stream_stream if name in _STREAMS else channel.unary_unary
            methods[name] = kind(
                f"/etcdserverpb.{service}/{_PAGES.get(name, name)}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
        return type(f"{service}Stub", (), {name: staticmethod(method) for name, method in methods.items()})()

    return make


KVStub: Final = _stub("KV")
WatchStub: Final = _stub("Watch")
LeaseStub: Final = _stub("Lease")
MaintenanceStub: Final = _stub("Maintenance")
AuthStub: Final = _stub("Auth")
ClusterStub: Final = _stub("Cluster")
