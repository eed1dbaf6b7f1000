"""What the listener hears."""

import asyncio

import psycopg
import pytest

from jobs.unavailable import DatabaseUnavailable
from supervisor.listener import Listener
from tests.jobs.lab import until


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
            assert await listener._proves()
            assert heard == ["new greet"]
        finally:
            await listener.stop()


async def test_a_connection_that_the_server_ended_is_replaced_and_what_waits_is_looked_at(url: str) -> None:
    connects: list[float] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:

        async def notify(channel: str) -> None:
            await other.execute("SELECT pg_notify(%s, '')", [channel])

        heard: list[str] = []
        listener = Listener(
            url, notify=notify, on_connect=lambda: connects.append(1), on_jobs=heard.append, on_control=heard.append
        )
        try:
            await listener.run_once()
            listening = asyncio.create_task(listener.run_once())
            await asyncio.sleep(0.05)
            await other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'oomph listener' AND datname = current_database()"
            )
            with pytest.raises(DatabaseUnavailable):
                await asyncio.wait_for(listening, 2)
            await listener.run_once()
            assert len(connects) == 2
            await other.execute("SELECT pg_notify('background_jobs', 'new greet')")
            await until(lambda: heard == ["new greet"])
        finally:
            await listener.stop()


async def test_many_notifications_in_one_packet_are_all_heard(url: str) -> None:
    heard: list[str] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:

        async def notify(channel: str) -> None:
            await other.execute("SELECT pg_notify(%s, '')", [channel])

        listener = Listener(url, notify=notify, on_connect=lambda: None, on_jobs=heard.append, on_control=heard.append)
        try:
            await listener.run_once()
            await other.execute("SELECT pg_notify('background_jobs', 'new ' || n) FROM generate_series(1, 5000) AS n")
            await until(lambda: len(heard) == 5000)
            assert heard == [f"new {number}" for number in range(1, 5001)]
        finally:
            await listener.stop()


async def test_a_fault_of_whoever_is_told_costs_one_connection(url: str) -> None:
    """Not every one that follows: what ended it is told once."""
    heard: list[str] = []

    def on_jobs(payload: str) -> None:
        if payload == "new fault":
            raise LookupError(payload)
        heard.append(payload)

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:

        async def notify(channel: str) -> None:
            await other.execute("SELECT pg_notify(%s, '')", [channel])

        listener = Listener(url, notify=notify, on_connect=lambda: None, on_jobs=on_jobs, on_control=heard.append)
        try:
            await listener.run_once()
            await other.execute("SELECT pg_notify('background_jobs', 'new fault')")
            with pytest.raises(LookupError):
                await listener.run_once()
            await listener.run_once()
            await other.execute("SELECT pg_notify('background_jobs', 'new greet')")
            await until(lambda: heard == ["new greet"])
        finally:
            await listener.stop()
