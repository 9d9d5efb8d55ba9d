"""Stand-ins for what needs GPUs in verl's agent loop: its inference server and its models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config
from verl.workers.rollout.replica import TokenOutput

CALL = '<tool_call>{"name": "look_up", "arguments": {"word": "x"}}</tool_call>'
ANSWER = "y" * 4
LONG_ANSWER = "y" * 24
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class StandInServer:
    """Answers each sample with a call of a tool, then with text; one answer takes long."""

    def __init__(self, path: str) -> None:
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
        self._version = 0

    def set_version(self, version: int) -> None:
        """As new weights do."""
        self._version = version

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        prompt = self._tokenizer.decode(prompt_ids)
        is_long = "word 0<" in prompt
        text = (LONG_ANSWER if is_long else ANSWER) if "found" in prompt else CALL
        await asyncio.sleep(4.0 if text == LONG_ANSWER else 0.02)
        tokens = self._tokenizer.encode(text + "<|im_end|>", add_special_tokens=False)
        return TokenOutput(
            token_ids=tokens,
            log_probs=[0.0] * len(tokens),
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self._version},
        )


class StandInActors:
    """The workers that would train, which verl tells when a step is profiled."""

    def start_profile(self, **_: Any) -> None:
        pass

    def stop_profile(self, **_: Any) -> None:
        pass


class StandInReward:
    """Scores a sample by its length."""

    async def compute_score(self, data: Any) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"reward_score": float(len(data.batch["responses"][0])), "reward_extra_info": {}}


def save_model(directory: Path) -> None:
    """Write a model's configuration, and a tokenizer that has one token for each byte."""
    characters = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    characters += sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(characters)}
    plain = Tokenizer(models.BPE(vocabulary, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=_TEMPLATE,
    )
    tokenizer.save_pretrained(directory)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    Qwen2Config(
        vocab_size=len(vocabulary), architectures=["Qwen2ForCausalLM"], **size
    ).save_pretrained(directory)
