"""Networks of our own, for architectures that transformers has not, and the configuration of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from transformers import AutoConfig, PreTrainedConfig

from engine.adapters.forward import dialects, gte, jina_bert, nomic_moe


def register() -> None:
    """Make them known to transformers' automatic classes. Again is harmless."""
    for network in (gte, jina_bert, nomic_moe):
        network.register()


def configuration(said: Mapping[str, Any], names: Collection[str]) -> PreTrainedConfig | None:
    """Of a network that stands in for a repository's own code; None where it has none that is known here.

    `said` is its config.json, `names` those of its tensors. Raises ValueError for a variant not served.
    """
    known = dialects.translated(said)
    if known == said:
        return None
    if known["model_type"] == dialects.JINA_BERT:
        known["qk_norm"] = any("layer_norm_q" in name.split(".") for name in names)
    kind = known.pop("model_type")
    return cast(PreTrainedConfig, cast(Any, AutoConfig).for_model(kind, **known))
