from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("version", "operation", "txnId", "priority")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    TXNID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    version: int
    operation: int
    txnId: int
    priority: int
    def __init__(self, version: _Optional[int] = ..., operation: _Optional[int] = ..., txnId: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("ledgerId", "entryId")
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    ENTRYID_FIELD_NUMBER: _ClassVar[int]
    ledgerId: int
    entryId: int
    def __init__(self, ledgerId: _Optional[int] = ..., entryId: _Optional[int] = ...) -> None: ...

class ReadLacRequest(_message.Message):
    __slots__ = ("ledgerId", "ledgerScopeId")
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    LEDGERSCOPEID_FIELD_NUMBER: _ClassVar[int]
    ledgerId: int
    ledgerScopeId: int
    def __init__(self, ledgerId: _Optional[int] = ..., ledgerScopeId: _Optional[int] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ("requested",)
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    requested: int
    def __init__(self, requested: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("ledgerId", "ledgerScopeId")
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    LEDGERSCOPEID_FIELD_NUMBER: _ClassVar[int]
    ledgerId: int
    ledgerScopeId: int
    def __init__(self, ledgerId: _Optional[int] = ..., ledgerScopeId: _Optional[int] = ...) -> None: ...

class AuthMessage(_message.Message):
    __slots__ = ("authPluginName", "payload")
    AUTHPLUGINNAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    authPluginName: str
    payload: bytes
    def __init__(self, authPluginName: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class StartTls(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Request(_message.Message):
    __slots__ = ("header", "read", "auth", "readLac", "info", "startTls", "list")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    READLAC_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    STARTTLS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    header: Header
    read: ReadRequest
    auth: AuthMessage
    readLac: ReadLacRequest
    info: InfoRequest
    startTls: StartTls
    list: ListRequest
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., read: _Optional[_Union[ReadRequest, _Mapping]] = ..., auth: _Optional[_Union[AuthMessage, _Mapping]] = ..., readLac: _Optional[_Union[ReadLacRequest, _Mapping]] = ..., info: _Optional[_Union[InfoRequest, _Mapping]] = ..., startTls: _Optional[_Union[StartTls, _Mapping]] = ..., list: _Optional[_Union[ListRequest, _Mapping]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("status", "ledgerId", "entryId", "body", "maxLac", "ledgerScopeId")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    ENTRYID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MAXLAC_FIELD_NUMBER: _ClassVar[int]
    LEDGERSCOPEID_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledgerId: int
    entryId: int
    body: bytes
    maxLac: int
    ledgerScopeId: int
    def __init__(self, status: _Optional[int] = ..., ledgerId: _Optional[int] = ..., entryId: _Optional[int] = ..., body: _Optional[bytes] = ..., maxLac: _Optional[int] = ..., ledgerScopeId: _Optional[int] = ...) -> None: ...

class ReadLacResponse(_message.Message):
    __slots__ = ("status", "ledgerId", "lacBody", "lastEntryBody", "ledgerScopeId")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    LACBODY_FIELD_NUMBER: _ClassVar[int]
    LASTENTRYBODY_FIELD_NUMBER: _ClassVar[int]
    LEDGERSCOPEID_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledgerId: int
    lacBody: bytes
    lastEntryBody: bytes
    ledgerScopeId: int
    def __init__(self, status: _Optional[int] = ..., ledgerId: _Optional[int] = ..., lacBody: _Optional[bytes] = ..., lastEntryBody: _Optional[bytes] = ..., ledgerScopeId: _Optional[int] = ...) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("status", "total", "free")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    status: int
    total: int
    free: int
    def __init__(self, status: _Optional[int] = ..., total: _Optional[int] = ..., free: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("status", "ledgerId", "availability", "ledgerScopeId")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGERID_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    LEDGERSCOPEID_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledgerId: int
    availability: bytes
    ledgerScopeId: int
    def __init__(self, status: _Optional[int] = ..., ledgerId: _Optional[int] = ..., availability: _Optional[bytes] = ..., ledgerScopeId: _Optional[int] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("header", "status", "read", "auth", "readLac", "info", "startTls", "list")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    READLAC_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    STARTTLS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    header: Header
    status: int
    read: ReadResponse
    auth: AuthMessage
    readLac: ReadLacResponse
    info: InfoResponse
    startTls: StartTls
    list: ListResponse
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., status: _Optional[int] = ..., read: _Optional[_Union[ReadResponse, _Mapping]] = ..., auth: _Optional[_Union[AuthMessage, _Mapping]] = ..., readLac: _Optional[_Union[ReadLacResponse, _Mapping]] = ..., info: _Optional[_Union[InfoResponse, _Mapping]] = ..., startTls: _Optional[_Union[StartTls, _Mapping]] = ..., list: _Optional[_Union[ListResponse, _Mapping]] = ...) -> None: ...
