"""Which shard an organisation lives on: the same answer everywhere without a table, few moves when one is added."""

from collections.abc import Sequence
from hashlib import blake2b


def shard_of(organization_id: str, shards: Sequence[str]) -> str:
    """The shard of this name's highest score (rendezvous hashing): one more of N moves 1 in N + 1 organisations."""
    return max(shards, key=lambda shard: blake2b(f"{shard}\0{organization_id}".encode(), digest_size=8).digest())
