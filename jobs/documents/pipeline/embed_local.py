"""A model on this host's disk, by model2vec: static embeddings, which need neither a GPU nor torch.

A transformer would not fit in a child's memory. Where its quality is wanted, run it in a server of models beside the
worker, which many children share, and name that server's URL.
"""

import os
from array import array
from collections.abc import Sequence
from pathlib import Path

from model2vec import StaticModel

from jobs.documents.errors import EmbeddingRefused
from jobs.documents.pipeline.embedder import BATCH_SIZE, Vector

# Read at the first text. A child has one core's worth of a host, and its threads count against its limits.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class LocalEmbedder:
    """The model in a folder that `StaticModel.save_pretrained` wrote. Nothing is ever downloaded."""

    def __init__(self, folder: Path, name: str, *, batch_size: int = BATCH_SIZE) -> None:
        """Loads the model. Raises `EmbeddingRefused` where the folder holds none."""
        self.name = name
        self.batch_size = batch_size
        if not folder.is_dir():  # the library would ask a hub for a model of that name
            raise EmbeddingRefused(f"EMBEDDING_URL names the folder {folder}, which does not exist on this host.")
        try:
            self._model = StaticModel.from_pretrained(folder)
        except Exception as error:  # the tokenizer's library raises nothing more precise
            raise EmbeddingRefused(f"The folder {folder} holds no model that model2vec reads: {error}") from error

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        # Without a limit of tokens: the mean over a whole chunk says more than over its beginning.
        rows = self._model.encode(list(texts), max_length=None, batch_size=self.batch_size, use_multiprocessing=False)
        return [array("f", row.astype("float32").tobytes()) for row in rows]
