"""A service that takes accounts: each is stored, and its welcome enqueued, in the transaction of the request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID, uuid4

from database import Account, Base, engine, sessions
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from tasks import SEND_WELCOME, SendWelcome

from jobs import enqueue


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def transaction() -> AsyncIterator[AsyncSession]:
    """One transaction for one request: committed when the handler returns, rolled back when it raises."""
    async with sessions.begin() as session:
        yield session


# With the scope "function" the transaction ends before the answer is sent, so that a 201 is never taken back.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
api = FastAPI(lifespan=lifespan)


class NewAccount(BaseModel):
    email: str


class AccountView(BaseModel):
    id: UUID
    email: str
    welcomed: bool


@api.post("/accounts", status_code=201)
async def create_account(new: NewAccount, session: Transaction) -> AccountView:
    account = Account(id=uuid4(), email=new.email)
    session.add(account)
    try:
        await session.flush()
    except IntegrityError as error:
        raise HTTPException(409, f"{new.email} has an account already") from error
    await enqueue(session, SEND_WELCOME, SendWelcome(account_id=account.id))
    return AccountView(id=account.id, email=account.email, welcomed=False)


@api.get("/accounts/{account_id}")
async def read_account(account_id: UUID, session: Transaction) -> AccountView:
    account = await session.get(Account, account_id)
    if account is None:
        raise HTTPException(404, f"there is no account {account_id}")
    return AccountView(id=account.id, email=account.email, welcomed=account.welcomed_at is not None)
