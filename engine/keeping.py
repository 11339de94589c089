"""Who has something in `state.db`, made from what it holds; without a database each starts empty."""

from __future__ import annotations

from collections.abc import Callable

from engine.access import rows
from engine.access.access import Access
from engine.access.access import StateBox as AccessBox
from engine.actors import state_store
from engine.adjustments import Adjustments
from engine.audit import Audit
from engine.batches import rows as batch_rows
from engine.batches.batches import Batches
from engine.batches.shelf import Shelf, StateBox
from engine.boxes import Boxes
from engine.catalog import Catalog
from engine.config import Settings
from engine.parts import Parts


def adjustments_of(entries: Catalog, parts: Parts) -> Adjustments:
    """What operators adjusted in these entries."""
    return Adjustments(entries, {} if parts.state is None else state_store.adjustments(parts.state))


def audit_of(parts: Parts, boxes: Boxes, briefly: Callable[[str, str], str]) -> Audit:
    """What operators did; `briefly` says how a model, or what was done to of it, is now."""
    return Audit(
        boxes.state if parts.state is not None else None,
        state_store.last_action(parts.state) if parts.state is not None else 0,
        briefly,
        boxes.recorder if parts.traffic is not None else None,
    )


def access_of(settings: Settings, parts: Parts, boxes: Boxes) -> Access:
    """Who may come in; without a database there are neither keys nor users, and none can be made."""
    if parts.state is None:
        return Access(settings)
    return Access(settings, AccessBox(boxes.state), rows.known(parts.state))


def batches_of(settings: Settings, parts: Parts, boxes: Boxes) -> Batches:
    """Without a database there are neither files nor batches, and none can be made."""
    if parts.state is None:
        return Batches(settings, Shelf(settings), parts.clock)
    kept = batch_rows.files(parts.state), batch_rows.batches(parts.state)
    return Batches(settings, Shelf(settings, StateBox(boxes.state), *kept), parts.clock)
