"""The service's own tables, and its sessions."""

import os
from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# The same URL as Oomph's, of which SQLAlchemy wants to know the driver too.
URL = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
engine = create_async_engine(URL)
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase): ...


class Account(Base):
    __tablename__ = "accounts"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    welcomed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
