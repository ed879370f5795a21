from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class CookieFormat(_message.Message):
    __slots__ = ("bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs")
    BOOKIEHOST_FIELD_NUMBER: _ClassVar[int]
    JOURNALDIR_FIELD_NUMBER: _ClassVar[int]
    LEDGERDIRS_FIELD_NUMBER: _ClassVar[int]
    INSTANCEID_FIELD_NUMBER: _ClassVar[int]
    INDEXDIRS_FIELD_NUMBER: _ClassVar[int]
    bookieHost: bytes
    journalDir: bytes
    ledgerDirs: bytes
    instanceId: bytes
    indexDirs: bytes
    def __init__(self, bookieHost: _Optional[bytes] = ..., journalDir: _Optional[bytes] = ..., ledgerDirs: _Optional[bytes] = ..., instanceId: _Optional[bytes] = ..., indexDirs: _Optional[bytes] = ...) -> None: ...
