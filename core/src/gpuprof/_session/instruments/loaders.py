"""torch's DataLoader: the job waits for the next batch from the loader's worker processes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from gpuprof._session.instruments.instrument import Call, Instrument

LOADER = "DataLoader.next"


def _install(instrument: Instrument, dataloader: ModuleType) -> None:
    several = dataloader._MultiProcessingDataLoaderIter

    def following(iterator: Any) -> Call:
        # without worker processes the batch is made here, which is work
        return Call(LOADER, "data" if isinstance(iterator, several) else "nothing")

    instrument.around([dataloader._BaseDataLoaderIter], "__next__", following)


INSTALL = {"torch.utils.data.dataloader": _install}
