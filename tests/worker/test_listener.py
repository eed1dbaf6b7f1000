"""What the listener hears."""

import psycopg

from supervisor.listener import Listener


async def test_a_job_that_comes_in_one_packet_with_the_proof_is_heard(url: str) -> None:
    heard: list[str] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:

        async def notify(channel: str) -> None:
            async with other.transaction():
                await other.execute("SELECT pg_notify(%s, '')", [channel])
                await other.execute("SELECT pg_notify('background_jobs', 'new greet')")

        listener = Listener(url, notify=notify, on_connect=lambda: None, on_jobs=heard.append, on_control=heard.append)
        try:
            await listener.run_once()
            assert not heard, "before it is proven, it listens to nothing else"
            assert await listener._proves(listener._connection)  # type: ignore[arg-type]
            assert heard == ["new greet"]
        finally:
            await listener.stop()
