"""TRL's GRPO with a tiny model and a tokenizer made here; its reward takes long."""

import sys
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

words = {name: at for at, name in enumerate(["<pad>", "<eos>", *map(str, range(60))])}
plain = Tokenizer(models.WordLevel(words, unk_token="0"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
config = Qwen2Config(
    vocab_size=62,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    pad_token_id=0,
    eos_token_id=1,
)


def score(completions, **_):
    time.sleep(0.5)
    return [float(len(set(text.split()))) for text in completions]


torch.manual_seed(0)
arguments = GRPOConfig(
    sys.argv[1],
    max_steps=12,
    per_device_train_batch_size=4,
    num_generations=4,
    steps_per_generation=2,
    max_completion_length=8,
    report_to=[],
    use_cpu=True,
    bf16=False,
    save_strategy="no",
    logging_steps=12,
    disable_tqdm=True,
)
trainer = GRPOTrainer(
    Qwen2ForCausalLM(config),
    score,
    arguments,
    train_dataset=Dataset.from_dict({"prompt": [f"{n} {n + 1}" for n in range(20)]}),
    processing_class=tokenizer,
)
loss = trainer.train().training_loss
print("result", loss)
