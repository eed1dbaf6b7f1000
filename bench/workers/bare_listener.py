"""A worker of thirty lines, without leases, retries or limits: what remains is PostgreSQL, the driver and the loop."""

import asyncio
import os

import asyncpg

from bench.marks import mark

CLAIM = """
UPDATE bare_jobs SET taken = true
 WHERE id = ANY (ARRAY (SELECT id FROM bare_jobs WHERE NOT taken ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED))
RETURNING id, number
"""


async def main() -> None:
    url = os.environ["BENCH_URL"]
    work, ears = await asyncpg.connect(url), await asyncpg.connect(url)
    news = asyncio.Event()
    await ears.add_listener("bare_jobs", lambda *_: news.set())
    while True:
        news.clear()
        claimed = await work.fetch(CLAIM)
        for row in claimed:
            mark(row["number"])
        if claimed:
            await work.execute("DELETE FROM bare_jobs WHERE id = ANY ($1)", [row["id"] for row in claimed])
        else:
            await news.wait()


if __name__ == "__main__":
    asyncio.run(main())
