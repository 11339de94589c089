"""Random adapters of tiny models, made and saved by PEFT, and what PEFT makes of a base with one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import peft
import torch

from engine.adapters.family import family
from engine.adapters.lora.family import WithAdapters
from engine.catalog import ModelSpec
from engine.entry import Lora


def save(base: Path, to: Path, auto: Any, seed: int, **config: Any) -> Path:
    """An adapter with nothing at zero, as PEFT writes it."""
    torch.manual_seed(seed)
    model = peft.get_peft_model(auto.from_pretrained(base), peft.LoraConfig(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.normal_(0, 0.2)
    model.save_pretrained(str(to), save_embedding_layers=False)
    return to


def reference(base: Path, adapter: Path, auto: Any) -> Any:
    return peft.PeftModel.from_pretrained(auto.from_pretrained(base), str(adapter)).eval()


def with_loras(spec: ModelSpec, loras: dict[str, Path], **changes: Any) -> ModelSpec:
    named = {name: Lora(sources=({"directory": str(path)},)) for name, path in loras.items()}
    return spec.model_copy(update={"loras": named, **changes})


def loaded(spec: ModelSpec, path: Path, *, without: Collection[str] = ()) -> Any:
    """The model with its adapters over it, but for some."""
    model: Any = of(spec).load(spec, path, "cpu")
    for name in spec.loras.keys() - without:
        model.bring(name)
    return model


def of(spec: ModelSpec) -> WithAdapters:
    """The family, finding adapters where the entry says."""
    return WithAdapters(family(spec.family), lambda entry: Path(entry.sources[0].directory or ""))
