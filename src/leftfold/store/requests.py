"""Requests that speak of no one job: the store remembers what it answered, and answers the same again."""

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from leftfold.core.errors import RequestReusedError, StoreError
from leftfold.store.query import Again, Query, Steps

T = TypeVar("T")


class Request(NamedTuple):
    """A request by its id, unique within a tenant, and the hash of what it asks."""

    tenant: str
    id: str
    hash: str


def hash_of(*parts: object) -> str:
    """Give the hash by which two requests of one id are compared."""
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def once(
    request: Request | None,
    steps: Callable[[], Steps[T]],
    to_response: Callable[[T], object],
    of_response: Callable[[bytes], Steps[T]],
) -> Steps[T]:
    """Run the steps, unless this very request was answered before: then give that answer again.

    An empty answer is not remembered: there is nothing that a repetition could do twice.
    """
    if request is None:
        return (yield from steps())
    named = {"tenant": request.tenant, "request_id": request.id}
    yield Query("await_request", named)
    for request_hash, remembered in (yield Query("recall", named)):
        if request_hash != request.hash:
            raise RequestReusedError(f"request_id {request.id!r} was used for something else")
        try:
            return (yield from of_response(remembered.encode()))
        except (msgspec.MsgspecError, UnicodeEncodeError) as problem:
            raise StoreError(f"the answer that is kept under request_id {request.id!r} cannot be read") from problem
    answer = yield from steps()
    response = to_response(answer)
    if response:
        text = msgspec.json.encode(response).decode()
        kept = yield Query("remember", {**named, "request_hash": request.hash, "response": text})
        if not kept:
            raise Again  # the same request was faster on another connection: its answer is ours
    return answer
