"""Transformers' Trainer on a tiny GPT-2; a callback of its own is slow, or rank 1's data."""

import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

rank, slow = int(os.environ.get("RANK", "0")), sys.argv[1]


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, number):
        if slow == "loader" and rank == 1:
            time.sleep(0.05)
        tokens = torch.arange(number, number + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


class Sleepy(TrainerCallback):
    def on_step_end(self, *_, **__):
        if slow == "callback":
            time.sleep(0.2)


torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
arguments = TrainingArguments(
    sys.argv[2],
    max_steps=14,
    per_device_train_batch_size=2,
    report_to=[],
    use_cpu=True,
    save_strategy="no",
    logging_steps=14,
    disable_tqdm=True,
)
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(), callbacks=[Sleepy()])
loss = trainer.train().training_loss
if rank == 0:
    print("result", loss)
