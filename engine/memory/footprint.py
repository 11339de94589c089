"""What a model and a batch will take. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model takes on its device, known before it is loaded.

    A batch of cost c takes `workspace_base + c * workspace_per_cost` bytes beside the weights;
    a sequence being generated holds `kv_bytes_per_token` for each token of prompt and answer.
    """

    weights_bytes: int
    workspace_base: int = 0
    workspace_per_cost: float = 0.0
    kv_bytes_per_token: int = 0

    def workspace(self, cost: int) -> int:
        """Bytes that a batch of `cost` takes while it runs."""
        return int(self.workspace_base + cost * self.workspace_per_cost)

    def cost_within(self, workspace_bytes: int) -> int:
        """The largest cost whose batch takes no more than `workspace_bytes`; may be 0."""
        left = workspace_bytes - self.workspace_base
        if left < 0:
            return 0
        return int(left / self.workspace_per_cost) if self.workspace_per_cost else 1 << 62
