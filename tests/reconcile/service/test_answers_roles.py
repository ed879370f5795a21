"""What a token may do: its roles."""

from pathlib import Path

import pytest
from google.protobuf.struct_pb2 import Struct

from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.answers import Api
from reconcile.service.api.methods import METHODS, ApiError, Why
from reconcile.service.config import Caller, TokenRole, read_config
from reconcile.service.runs.leader import Instance
from tests.support.service import make_context, write_config

TOKENS = {f"{role}-0123456789abcdef": Caller(str(role), frozenset({role})) for role in TokenRole}
NEEDED = {
    "run-now": TokenRole.RUN,
    "open-maintenance": TokenRole.RUN,
    "close-maintenance": TokenRole.RUN,
    "release-maintenance": TokenRole.APPROVE,
    "request-deletes": TokenRole.DELETE,
    "verify-deletes": TokenRole.DELETE,
    "purge-deletes": TokenRole.DELETE,
}


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """The answers of an instance that nobody started, with a token of each role."""
    config = read_config(write_config(tmp_path, "etcd://127.0.0.1:1/l", "one", tmp_path / "data"))
    return Api(Instance(config, make_context()), TOKENS)


def test_a_token_may_do_what_its_roles_say(api: Api) -> None:
    """What changes something needs its role, and no other helps; what changes nothing needs none."""
    for method in METHODS:
        for token, caller in TOKENS.items():
            needed = NEEDED.get(method.path)
            if needed is None or needed in caller.roles:
                assert api.admit(method, f"Bearer {token}") == caller.name
                continue
            with pytest.raises(ApiError, match=f"needs a token with the role {needed}") as refused:
                api.admit(method, f"Bearer {token}")
            assert refused.value.why is Why.NOT_ALLOWED
    acting = {method.path for method in METHODS if method.acts}
    assert acting - {"start-task", "cancel-task"} == NEEDED.keys()


def test_a_task_needs_the_role_of_its_method(api: Api) -> None:
    """To begin it, and to end it: a task is no way past the roles."""
    start, cancel = (next(one for one in METHODS if one.path == path) for path in ("start-task", "cancel-task"))
    asked = pb.TaskRequest(method="purge-deletes", request=Struct())
    for name in ("read", "run", "approve"):
        with pytest.raises(ApiError, match="needs a token with the role delete"):
            api.answer(start, asked, name)
    begun = api.answer(start, asked, "delete")
    with pytest.raises(ApiError, match="needs a token with the role delete"):
        api.answer(cancel, pb.TaskId(id=begun.id), "run")
    api.answer(cancel, pb.TaskId(id=begun.id), "delete")
