from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LedgerId(_message.Message):
    __slots__ = ("ledger_id", "ledger_scope_id")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    ledger_scope_id: int
    def __init__(self, ledger_id: _Optional[int] = ..., ledger_scope_id: _Optional[int] = ...) -> None: ...

class Ledgers(_message.Message):
    __slots__ = ("ledgers", "ledger_scope_id")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerId]
    ledger_scope_id: int
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LedgerId, _Mapping]]] = ..., ledger_scope_id: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("exit_code", "verdict", "result")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    verdict: str
    result: _struct_pb2.Struct
    def __init__(self, exit_code: _Optional[int] = ..., verdict: _Optional[str] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("instance", "leads", "leader", "leader_address", "epoch", "leads_since_ms", "seen_s_ago", "problem", "jobs", "maintenances")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADS_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SEEN_S_AGO_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCES_FIELD_NUMBER: _ClassVar[int]
    instance: str
    leads: bool
    leader: str
    leader_address: str
    epoch: int
    leads_since_ms: int
    seen_s_ago: float
    problem: str
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    maintenances: _containers.RepeatedCompositeFieldContainer[Maintenance]
    def __init__(self, instance: _Optional[str] = ..., leads: bool = ..., leader: _Optional[str] = ..., leader_address: _Optional[str] = ..., epoch: _Optional[int] = ..., leads_since_ms: _Optional[int] = ..., seen_s_ago: _Optional[float] = ..., problem: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., maintenances: _Optional[_Iterable[_Union[Maintenance, _Mapping]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "running", "last", "latest", "asked", "due_ms", "failures", "missed", "broken_off")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    BROKEN_OFF_FIELD_NUMBER: _ClassVar[int]
    name: str
    running: Run
    last: Run
    latest: _containers.RepeatedCompositeFieldContainer[Run]
    asked: bool
    due_ms: int
    failures: int
    missed: int
    broken_off: int
    def __init__(self, name: _Optional[str] = ..., running: _Optional[_Union[Run, _Mapping]] = ..., last: _Optional[_Union[Run, _Mapping]] = ..., latest: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., asked: bool = ..., due_ms: _Optional[int] = ..., failures: _Optional[int] = ..., missed: _Optional[int] = ..., broken_off: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("number", "instance", "share", "by", "began_ms", "ended_ms", "exit_code", "verdict", "folder")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    number: int
    instance: str
    share: int
    by: str
    began_ms: int
    ended_ms: int
    exit_code: int
    verdict: str
    folder: str
    def __init__(self, number: _Optional[int] = ..., instance: _Optional[str] = ..., share: _Optional[int] = ..., by: _Optional[str] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., exit_code: _Optional[int] = ..., verdict: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class ScopeRequest(_message.Message):
    __slots__ = ("ledger_scope_id",)
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_scope_id: int
    def __init__(self, ledger_scope_id: _Optional[int] = ...) -> None: ...

class Ledger(_message.Message):
    __slots__ = ("ledger_id", "ledger_scope_id", "state", "last_entry", "length", "captured_ms")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    ledger_scope_id: int
    state: str
    last_entry: int
    length: int
    captured_ms: int
    def __init__(self, ledger_id: _Optional[int] = ..., ledger_scope_id: _Optional[int] = ..., state: _Optional[str] = ..., last_entry: _Optional[int] = ..., length: _Optional[int] = ..., captured_ms: _Optional[int] = ...) -> None: ...

class FindingsRequest(_message.Message):
    __slots__ = ("severity", "category", "ledger_id", "ledger_scope_id")
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    severity: str
    category: str
    ledger_id: int
    ledger_scope_id: int
    def __init__(self, severity: _Optional[str] = ..., category: _Optional[str] = ..., ledger_id: _Optional[int] = ..., ledger_scope_id: _Optional[int] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("id", "category", "severity", "status", "ledger_id", "ledger_scope_id", "segment", "subject", "bookies", "evidence", "unknowns", "suggested", "first_seen_ms", "last_seen_ms", "says")
    ID_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWNS_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    SAYS_FIELD_NUMBER: _ClassVar[int]
    id: str
    category: str
    severity: str
    status: str
    ledger_id: int
    ledger_scope_id: int
    segment: int
    subject: str
    bookies: _containers.RepeatedScalarFieldContainer[str]
    evidence: _containers.RepeatedCompositeFieldContainer[Evidence]
    unknowns: _containers.RepeatedScalarFieldContainer[str]
    suggested: str
    first_seen_ms: int
    last_seen_ms: int
    says: str
    def __init__(self, id: _Optional[str] = ..., category: _Optional[str] = ..., severity: _Optional[str] = ..., status: _Optional[str] = ..., ledger_id: _Optional[int] = ..., ledger_scope_id: _Optional[int] = ..., segment: _Optional[int] = ..., subject: _Optional[str] = ..., bookies: _Optional[_Iterable[str]] = ..., evidence: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., unknowns: _Optional[_Iterable[str]] = ..., suggested: _Optional[str] = ..., first_seen_ms: _Optional[int] = ..., last_seen_ms: _Optional[int] = ..., says: _Optional[str] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("side", "field", "value", "source")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    side: str
    field: str
    value: str
    source: str
    def __init__(self, side: _Optional[str] = ..., field: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class ImpactRequest(_message.Message):
    __slots__ = ("bookies", "domains", "target")
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    bookies: _containers.RepeatedScalarFieldContainer[str]
    domains: _containers.RepeatedScalarFieldContainer[str]
    target: str
    def __init__(self, bookies: _Optional[_Iterable[str]] = ..., domains: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("job", "why")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    job: str
    why: str
    def __init__(self, job: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class DeletesRequest(_message.Message):
    __slots__ = ("ledgers", "reason", "soak")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOAK_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerId]
    reason: str
    soak: str
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LedgerId, _Mapping]]] = ..., reason: _Optional[str] = ..., soak: _Optional[str] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("ledgers", "confirm_count", "certificate")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_COUNT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerId]
    confirm_count: int
    certificate: bool
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LedgerId, _Mapping]]] = ..., confirm_count: _Optional[int] = ..., certificate: bool = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("certificate", "confirm_hash", "approvals")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_HASH_FIELD_NUMBER: _ClassVar[int]
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    confirm_hash: str
    approvals: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, certificate: _Optional[bytes] = ..., confirm_hash: _Optional[str] = ..., approvals: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Deletes(_message.Message):
    __slots__ = ("exit_code", "verdict", "ledgers", "certificate", "certificate_hash", "result")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_HASH_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    verdict: str
    ledgers: _containers.RepeatedCompositeFieldContainer[Delete]
    certificate: bytes
    certificate_hash: str
    result: _struct_pb2.Struct
    def __init__(self, exit_code: _Optional[int] = ..., verdict: _Optional[str] = ..., ledgers: _Optional[_Iterable[_Union[Delete, _Mapping]]] = ..., certificate: _Optional[bytes] = ..., certificate_hash: _Optional[str] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Delete(_message.Message):
    __slots__ = ("ledger_id", "ledger_scope_id", "state", "verdict", "reasons")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_SCOPE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    ledger_scope_id: int
    state: str
    verdict: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ledger_id: _Optional[int] = ..., ledger_scope_id: _Optional[int] = ..., state: _Optional[str] = ..., verdict: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class MaintenanceRequest(_message.Message):
    __slots__ = ("id", "bookies", "domains", "target", "why", "ttl")
    ID_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    id: str
    bookies: _containers.RepeatedScalarFieldContainer[str]
    domains: _containers.RepeatedScalarFieldContainer[str]
    target: str
    why: str
    ttl: str
    def __init__(self, id: _Optional[str] = ..., bookies: _Optional[_Iterable[str]] = ..., domains: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ..., why: _Optional[str] = ..., ttl: _Optional[str] = ...) -> None: ...

class MaintenanceId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("id", "statement")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    statement: str
    def __init__(self, id: _Optional[str] = ..., statement: _Optional[str] = ...) -> None: ...

class Maintenance(_message.Message):
    __slots__ = ("id", "state", "bookies", "domains", "target", "opened_by", "opened_ms", "verdict", "checked_ms", "statement", "result", "why", "until_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BOOKIES_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPENED_BY_FIELD_NUMBER: _ClassVar[int]
    OPENED_MS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CHECKED_MS_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    bookies: _containers.RepeatedScalarFieldContainer[str]
    domains: _containers.RepeatedScalarFieldContainer[str]
    target: str
    opened_by: str
    opened_ms: int
    verdict: str
    checked_ms: int
    statement: str
    result: _struct_pb2.Struct
    why: str
    until_ms: int
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., bookies: _Optional[_Iterable[str]] = ..., domains: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ..., opened_by: _Optional[str] = ..., opened_ms: _Optional[int] = ..., verdict: _Optional[str] = ..., checked_ms: _Optional[int] = ..., statement: _Optional[str] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., why: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class TaskRequest(_message.Message):
    __slots__ = ("method", "request", "why")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    method: str
    request: _struct_pb2.Struct
    why: str
    def __init__(self, method: _Optional[str] = ..., request: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class TaskId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class TasksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Tasks(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "method", "by", "why", "state", "began_ms", "ended_ms", "progress", "error", "result")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    id: str
    method: str
    by: str
    why: str
    state: str
    began_ms: int
    ended_ms: int
    progress: str
    error: str
    result: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., method: _Optional[str] = ..., by: _Optional[str] = ..., why: _Optional[str] = ..., state: _Optional[str] = ..., began_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., progress: _Optional[str] = ..., error: _Optional[str] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
