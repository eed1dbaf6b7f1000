"""The worker's settings: environment variables, validated at start, each error naming the variable and its range.

The defaults are chosen for a host of its own; what they assume stands beside them.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jobs import failpoints
from jobs.task import Pool, Retention
from supervisor.installation import check_name, check_page_url

LAST_PORT = 65_535
HEARTBEATS_PER_LEASE = 3  # two renewals may fail before the lease is at risk


class SettingsError(Exception):
    """A setting is wrong; one line each in the message. Nothing was started."""


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_paths(value: Any) -> Any:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _address(value: str) -> str:
    host_and_port(value)
    return value


def host_and_port(address: str) -> tuple[str, int] | None:
    """What `WORKER_HTTP` names: this machine alone unless it names a host; None where it is empty.

    Raises `ValueError`.
    """
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise ValueError("no port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class Settings(BaseModel):
    """Every field is the environment variable of the same name in capitals; times are seconds, memory is MiB."""

    model_config = ConfigDict(frozen=True)

    database_url: str = Field(default="", description="The database, as a libpq URL or key=value string.")
    worker_app: str = Field(
        default="", description="What the worker runs: `module:attribute`, an `App` or a function that returns one."
    )
    worker_pools: Annotated[list[Pool], BeforeValidator(_split)] = Field(
        default=[Pool.AGENT, Pool.INGEST, Pool.SYSTEM], min_length=1, description="The pools that this worker serves."
    )
    worker_agent_concurrency: int = Field(
        default=100, ge=1, le=10_000, description="Agent jobs at once on the loop; they wait on the network."
    )
    worker_system_concurrency: int = Field(default=10, ge=1, le=10_000, description="System jobs at once on the loop.")
    worker_ingest_concurrency: int = Field(
        default=0, ge=0, le=1_000, description="Ingest children at once; 0 chooses by processors and memory."
    )
    worker_ingest_memory_mb: int = Field(
        default=1024, ge=1, le=1 << 24, description="MiB that one ingest child may use beyond what the template uses."
    )
    worker_ingest_budget_mb: int = Field(
        default=0, ge=0, le=1 << 30, description="MiB that all ingest children may use together; 0 takes what is left."
    )
    worker_ingest_start_method: Literal["fork", "exec"] = Field(
        default="fork", description="`exec` loads the app anew in every child, for code that a fork would break."
    )
    worker_ingest_user: str = Field(
        default="",
        description="The user (name, or uid:gid) that ingest jobs run as; needs a worker that is root, Python and the "
        "app where that user may read, and not `--embedded`.",
    )
    worker_ingest_read_paths: Annotated[list[str], BeforeValidator(_split_paths)] = Field(
        default=[],
        description="Folders, split by `:`, that ingest jobs may read besides the interpreter's own and the system's; "
        "only their scratch folder is writable then. Empty restricts no path. Needs Landlock.",
    )
    worker_ingest_write_paths: Annotated[list[str], BeforeValidator(_split_paths)] = Field(
        default=[],
        description="With `WORKER_INGEST_READ_PATHS`, folders that ingest jobs may write to besides: an object store's "
        "that is a folder.",
    )
    worker_ingest_scratch_path: str = Field(
        default="", description="Where each ingest job gets its private working folder; empty is the system's TMPDIR."
    )
    worker_ingest_scratch_mb: int = Field(
        default=2048,
        ge=1,
        le=1 << 24,
        description="MiB that an ingest job may keep there, and the size of one file; folders nest 200 deep at most.",
    )
    worker_ingest_processes: int = Field(
        default=512,
        ge=1,
        le=1 << 20,
        description="Processes that one ingest job may have at once, also dead ones that it has not waited for, and "
        "four times as many threads (four for each processor, where that is more).",
    )
    worker_ingest_open_files: int = Field(
        default=1024, ge=64, le=1 << 20, description="Descriptors that one process of an ingest job may have open."
    )
    worker_ingest_cgroup: str = Field(
        default="auto",
        description="A cgroup v2 folder for one leaf per ingest child; `auto` uses a delegated one, `off` none.",
    )
    worker_lease_seconds: float = Field(
        default=30, ge=2, le=3_600, description="How long a silent worker keeps its jobs before others take them."
    )
    worker_heartbeat_seconds: float = Field(
        default=5, ge=0.1, le=1_200, description="How often the lease is renewed; at most a third of the lease."
    )
    worker_poll_seconds: float = Field(
        default=1, ge=0.05, le=300, description="How often the queue is looked at without a notification."
    )
    worker_shutdown_seconds: float = Field(
        default=30, ge=0, le=86_400, description="How long running jobs may go on after the first SIGTERM."
    )
    worker_retry_delay_seconds: float = Field(
        default=15, ge=0, le=300, description="The first back-off; it doubles with every attempt, up to 300."
    )
    worker_pause_after_kills: int = Field(default=5, ge=1, le=1_000, description="Kills in a row that pause a kind.")
    worker_unknown_kind_grace_seconds: float = Field(
        default=0,
        ge=0,
        le=86_400,
        description="How long a due job waits for a live worker that knows its kind. Where one knew it before, at "
        "least until that one has been gone for 300 seconds.",
    )
    worker_retention_succeeded_days: float = Field(
        default=7, ge=0, le=36_500, description="How long a job is kept that succeeded; 0 is for ever."
    )
    worker_retention_dead_days: float = Field(
        default=30, ge=0, le=36_500, description="How long a dead job is kept; 0 is for ever."
    )
    worker_retention_cancelled_days: float = Field(
        default=30, ge=0, le=36_500, description="How long a cancelled job is kept; 0 is for ever."
    )
    worker_retention_records_days: float = Field(
        default=365, ge=0, le=36_500, description="How long notices and the audit are kept; 0 is for ever."
    )
    worker_call_timeout_seconds: float = Field(
        default=10, ge=0.5, le=300, description="The bound of one database call, on the worker's side."
    )
    worker_listen: Literal["on", "off"] = Field(
        default="on", description="`off` polls only, for poolers in transaction mode."
    )
    worker_listen_url: str = Field(
        default="", description="A direct connection for LISTEN where DATABASE_URL goes through a pooler."
    )
    worker_block_warning_seconds: float = Field(
        default=1, ge=0.1, le=300, description="A handler that blocks the loop this long is named in the log."
    )
    worker_log_format: Literal["text", "json"] = Field(
        default="text", description="`json` writes one object a line, with job and attempt as fields of their own."
    )
    worker_http: Annotated[str, AfterValidator(_address)] = Field(
        default="",
        description="`PORT` or `HOST:PORT` for `/metrics`, `/livez` and `/readyz`; without a host only this machine "
        "reaches them. Empty serves none.",
    )
    worker_installation: str = Field(
        default="",
        description="What this installation is called in notices, such as `production`: up to 40 letters, digits, "
        "dots, hyphens and underscores.",
    )
    worker_page_url: str = Field(
        default="",
        description="Where people reach its page, such as `https://jobs.example.org/background`; notices link to it.",
    )
    worker_owners: Annotated[list[str], BeforeValidator(_split)] = Field(
        default=[], description="Who gets notices by e-mail: addresses, split by commas. Needs `SMTP_URL`."
    )
    smtp_url: SecretStr = Field(
        default=SecretStr(""),
        description="Where that mail is handed in: `smtps://user:password@host:465`, or "
        "`smtp://user:password@host:587?starttls`; without TLS only to this host, `smtp://localhost:25`.",
    )
    smtp_from: str = Field(
        default="", description="Its sender; empty is the user of `SMTP_URL` if that is an address, or the first owner."
    )
    smtp_ca_file: str = Field(
        default="", description="Certificates (PEM) to trust for the mail server, instead of the system's."
    )
    worker_webhook_url: SecretStr = Field(
        default=SecretStr(""), description="Where notices are POSTed, signed as Standard Webhooks has it."
    )
    worker_webhook_secret: SecretStr = Field(
        default=SecretStr(""), description="What they are signed with: `whsec_` and 24 to 64 random bytes in base64."
    )
    worker_notice_digest_seconds: float = Field(
        default=300,
        ge=0,
        le=86_400,
        description="After a message, what comes within this time waits for the next, which says how many there were.",
    )

    @field_validator("worker_pools")
    @classmethod
    def _each_pool_once(cls, pools: list[Pool], _: ValidationInfo) -> list[Pool]:
        return list(dict.fromkeys(pools))

    @model_validator(mode="after")
    def _heartbeat_well_below_lease(self) -> "Settings":
        most = self.worker_lease_seconds / HEARTBEATS_PER_LEASE
        if self.worker_heartbeat_seconds > most:
            raise ValueError(
                f"WORKER_HEARTBEAT_SECONDS={self.worker_heartbeat_seconds:g} is more than a third of "
                f"WORKER_LEASE_SECONDS={self.worker_lease_seconds:g}: a single late renewal would lose the lease; "
                f"allowed are 0.1 to {most:g}"
            )
        return self

    @model_validator(mode="after")
    def _notices_say_where_they_come_from(self) -> "Settings":
        check_name("WORKER_INSTALLATION", self.worker_installation)
        check_page_url("WORKER_PAGE_URL", self.worker_page_url)
        return self

    @model_validator(mode="after")
    def _notices_reach_somebody(self) -> "Settings":
        """SMTP_URL alone says nothing: it may be there for the app's own mail."""
        if self.worker_owners:
            from supervisor.notices.mail_server import (
                check_address,
                parse_smtp_url,
            )  # megabytes, for those who use them

            for owner in self.worker_owners:
                check_address("WORKER_OWNERS", owner)
            if not self.smtp_url.get_secret_value():
                raise ValueError("WORKER_OWNERS names who gets notices by e-mail, but SMTP_URL is not set")
            parse_smtp_url(self.smtp_url.get_secret_value())
            if self.smtp_from:
                check_address("SMTP_FROM", self.smtp_from)
        url, secret = self.worker_webhook_url.get_secret_value(), self.worker_webhook_secret.get_secret_value()
        if bool(url) != bool(secret):
            raise ValueError("WORKER_WEBHOOK_URL and WORKER_WEBHOOK_SECRET go together; one of them is not set")
        if url:
            from supervisor.notices.webhook_address import check_url, parse_secret

            check_url(url)
            parse_secret(secret)
        return self

    @property
    def sends_notices(self) -> bool:
        """Somebody is named to be told of what happens."""
        return bool(self.worker_owners or self.worker_webhook_url.get_secret_value())

    @property
    def lease_margin(self) -> float:
        """Seconds before the lease's end at which the worker gives its jobs up: time to kill what runs."""
        return max(0.5, self.worker_lease_seconds / 6)

    @property
    def retention(self) -> Retention:
        """How long finished jobs are kept whose kind does not say so itself."""
        return Retention(
            succeeded=timedelta(days=self.worker_retention_succeeded_days),
            dead=timedelta(days=self.worker_retention_dead_days),
            cancelled=timedelta(days=self.worker_retention_cancelled_days),
        )

    def concurrency(self, pool: Pool) -> int:
        """Slots of a pool; 0 for ingest means that nobody has chosen yet."""
        return int(getattr(self, f"worker_{pool}_concurrency"))


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; `overrides` (field names) win. Raises `SettingsError`."""
    environment = {name.lower(): value for name, value in os.environ.items()}
    given: dict[str, Any] = {name: environment[name] for name in Settings.model_fields if name in environment}
    given |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise SettingsError("\n".join(dict.fromkeys(_told(detail, overrides) for detail in error.errors()))) from None


def unknown_variables() -> list[str]:
    """Variables of the environment that look like ours and are not: most likely misspelt."""
    known = {name.upper() for name in Settings.model_fields} | {failpoints.VARIABLE}
    return sorted(name for name in os.environ if name.startswith("WORKER_") and name not in known)


def _told(detail: Mapping[str, Any], overrides: Mapping[str, Any]) -> str:
    if not detail["loc"]:  # of several settings together; what is secret is not in it
        return str(detail["ctx"]["error"])
    field = str(detail["loc"][0])
    variable = field.upper()
    given = overrides.get(field) or os.environ.get(variable, detail.get("input"))
    return f"{variable}={given}: {_allowed(field)}"


def _allowed(field: str) -> str:
    if field == "worker_pools":
        return f"allowed is a comma-separated list of {', '.join(Pool)}"
    if field == "worker_http":
        return "must be a port from 0 to 65,535 (0 takes a free one), or a host and a port such as 127.0.0.1:9100"
    info = Settings.model_fields[field]
    if get_origin(info.annotation) is Literal:
        return f"allowed are {' and '.join(get_args(info.annotation))}"
    bounds = {
        name: value
        for bound in info.metadata
        for name in ("ge", "le")
        if (value := getattr(bound, name, None)) is not None
    }
    number = "a whole number" if info.annotation is int else "a number"
    return f"must be {number} from {bounds['ge']:,} to {bounds['le']:,}"
