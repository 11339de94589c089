"""How large a batch the free bytes allow. Pure."""

from __future__ import annotations

import msgspec

from engine.conversation import Need
from engine.memory.workspace import Takes


class Sized(msgspec.Struct, frozen=True):
    """What a lease may come to: its batch's cost and workspace, and the unit's new total of KV tokens."""

    cost: int
    workspace_bytes: int
    kv_tokens: int


def size(need: Need, takes: Takes, free_bytes: int) -> Sized | None:
    """The largest batch up to what is wanted that fits in `free_bytes`; None when the least does not.

    The first waiting sequence's KV comes before workspace beyond the least, the others' KV after it.
    """
    per_token = takes.kv_bytes_per_token
    least = max(1, need.min_cost)
    for_workspace = free_bytes - (need.kv_min - need.kv_floor) * per_token
    if takes.workspace(least) > for_workspace:  # the very figure by which others are evicted for it
        return None
    most = max(least, min(need.want_cost, takes.largest_batch))
    cost = max(least, min(most, takes.cost_within(for_workspace)))
    workspace = takes.workspace(cost)
    joining = need.kv_want - need.kv_floor
    if per_token:
        joining = min(joining, (free_bytes - workspace) // per_token)
    return Sized(cost, workspace, need.kv_floor + joining)


def largest(takes: Takes, free_bytes: int) -> tuple[int, int]:
    """The largest (cost, KV tokens) of one job that `free_bytes` could ever serve."""
    cost = takes.cost_within(free_bytes)
    if not takes.kv_bytes_per_token:
        return cost, 1 << 62
    return cost, max(0, free_bytes - takes.workspace(1)) // takes.kv_bytes_per_token
