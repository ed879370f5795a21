from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[State]
    REQUESTED: _ClassVar[State]
    VERIFIED: _ClassVar[State]
    PURGEABLE: _ClassVar[State]
    PURGED: _ClassVar[State]
    CONFIRMED: _ClassVar[State]
    QUARANTINED: _ClassVar[State]
UNKNOWN: State
REQUESTED: State
VERIFIED: State
PURGEABLE: State
PURGED: State
CONFIRMED: State
QUARANTINED: State

class RootMark(_message.Message):
    __slots__ = ("version", "program", "ledgers_root", "instance_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_ROOT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    program: str
    ledgers_root: str
    instance_id: str
    def __init__(self, version: _Optional[int] = ..., program: _Optional[str] = ..., ledgers_root: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class LastListing(_message.Message):
    __slots__ = ("version", "at_ms", "ledgers", "by")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    version: int
    at_ms: int
    ledgers: int
    by: str
    def __init__(self, version: _Optional[int] = ..., at_ms: _Optional[int] = ..., ledgers: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class ClockCheck(_message.Message):
    __slots__ = ("version", "at_ms", "by")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    version: int
    at_ms: int
    by: str
    def __init__(self, version: _Optional[int] = ..., at_ms: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("version", "at_ms", "by", "archived", "soak_ms", "min_age_ms", "most_in_a_day", "approvals", "approvers", "quarantine_ms", "quarantine_most")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    SOAK_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MOST_IN_A_DAY_FIELD_NUMBER: _ClassVar[int]
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    APPROVERS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_MS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_MOST_FIELD_NUMBER: _ClassVar[int]
    version: int
    at_ms: int
    by: str
    archived: bool
    soak_ms: int
    min_age_ms: int
    most_in_a_day: int
    approvals: int
    approvers: _containers.RepeatedCompositeFieldContainer[Approver]
    quarantine_ms: int
    quarantine_most: int
    def __init__(self, version: _Optional[int] = ..., at_ms: _Optional[int] = ..., by: _Optional[str] = ..., archived: bool = ..., soak_ms: _Optional[int] = ..., min_age_ms: _Optional[int] = ..., most_in_a_day: _Optional[int] = ..., approvals: _Optional[int] = ..., approvers: _Optional[_Iterable[_Union[Approver, _Mapping]]] = ..., quarantine_ms: _Optional[int] = ..., quarantine_most: _Optional[int] = ...) -> None: ...

class Approver(_message.Message):
    __slots__ = ("name", "key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: bytes
    def __init__(self, name: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class TombstoneNode(_message.Message):
    __slots__ = ("version", "texts", "tombstones")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    version: int
    texts: _containers.RepeatedScalarFieldContainer[str]
    tombstones: _containers.RepeatedCompositeFieldContainer[Tombstone]
    def __init__(self, version: _Optional[int] = ..., texts: _Optional[_Iterable[str]] = ..., tombstones: _Optional[_Iterable[_Union[Tombstone, _Mapping]]] = ...) -> None: ...

class Tombstone(_message.Message):
    __slots__ = ("scope", "ledger", "state", "record", "record_version", "created_ms", "acl", "members", "holders", "steps", "reason", "soak_ms", "safe_in_row", "listed_ms", "objections", "certificate", "references", "hold", "quarantine_ms")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    RECORD_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOAK_MS_FIELD_NUMBER: _ClassVar[int]
    SAFE_IN_ROW_FIELD_NUMBER: _ClassVar[int]
    LISTED_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIONS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_MS_FIELD_NUMBER: _ClassVar[int]
    scope: int
    ledger: int
    state: State
    record: bytes
    record_version: int
    created_ms: int
    acl: int
    members: _containers.RepeatedScalarFieldContainer[int]
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    reason: int
    soak_ms: int
    safe_in_row: int
    listed_ms: int
    objections: _containers.RepeatedScalarFieldContainer[int]
    certificate: int
    references: _containers.RepeatedScalarFieldContainer[int]
    hold: bytes
    quarantine_ms: int
    def __init__(self, scope: _Optional[int] = ..., ledger: _Optional[int] = ..., state: _Optional[_Union[State, str]] = ..., record: _Optional[bytes] = ..., record_version: _Optional[int] = ..., created_ms: _Optional[int] = ..., acl: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., reason: _Optional[int] = ..., soak_ms: _Optional[int] = ..., safe_in_row: _Optional[int] = ..., listed_ms: _Optional[int] = ..., objections: _Optional[_Iterable[int]] = ..., certificate: _Optional[int] = ..., references: _Optional[_Iterable[int]] = ..., hold: _Optional[bytes] = ..., quarantine_ms: _Optional[int] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("bookie", "incarnation", "seen_ms", "released_ms", "release", "entries")
    BOOKIE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    bookie: int
    incarnation: int
    seen_ms: int
    released_ms: int
    release: int
    entries: int
    def __init__(self, bookie: _Optional[int] = ..., incarnation: _Optional[int] = ..., seen_ms: _Optional[int] = ..., released_ms: _Optional[int] = ..., release: _Optional[int] = ..., entries: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("state", "at_ms", "by")
    STATE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    state: State
    at_ms: int
    by: int
    def __init__(self, state: _Optional[_Union[State, str]] = ..., at_ms: _Optional[int] = ..., by: _Optional[int] = ...) -> None: ...

class ArchiveNode(_message.Message):
    __slots__ = ("version", "texts", "marks")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    version: int
    texts: _containers.RepeatedScalarFieldContainer[str]
    marks: _containers.RepeatedCompositeFieldContainer[ArchiveMark]
    def __init__(self, version: _Optional[int] = ..., texts: _Optional[_Iterable[str]] = ..., marks: _Optional[_Iterable[_Union[ArchiveMark, _Mapping]]] = ...) -> None: ...

class ArchiveMark(_message.Message):
    __slots__ = ("scope", "ledger", "by", "place", "checksum", "at_ms")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    scope: int
    ledger: int
    by: int
    place: int
    checksum: str
    at_ms: int
    def __init__(self, scope: _Optional[int] = ..., ledger: _Optional[int] = ..., by: _Optional[int] = ..., place: _Optional[int] = ..., checksum: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...
