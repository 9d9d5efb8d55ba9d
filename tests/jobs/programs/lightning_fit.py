"""Lightning on two processes, of which rank 1 computes longer."""

import sys
import time

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        if self.global_rank == 1:
            time.sleep(0.05)
        return self.layers(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


lightning.seed_everything(0, verbose=False)
data = torch.utils.data.DataLoader(torch.randn(60, 16), batch_size=2)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
model = Model()
trainer.fit(model, data)
if trainer.is_global_zero:
    print("result", float(model.layers[0].weight.sum()))
