"""How many wrong tokens a client may give: enough for a typing error, too few for a search."""

import time
from collections import OrderedDict, deque

WRONG_ONES = 10
WITHIN_SECONDS = 60.0
MAX_CLIENTS = 1_000  # the one that was wrong longest ago is forgotten


class Patience:
    """Of one process, by address. Tokens are too long to be guessed anyway; this says so to who tries.

    It never stands between a right token and the page: behind a proxy all clients may have one address.
    """

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Seconds until a wrong one of this client is merely wrong again; 0 where it is now."""
        moments = self._wrong.get(client)
        if moments is None or len(moments) < WRONG_ONES:
            return 0.0
        return max(0.0, moments[0] + WITHIN_SECONDS - time.monotonic())

    def wrong(self, client: str) -> None:
        """This client gave a wrong one."""
        moments = self._wrong.setdefault(client, deque(maxlen=WRONG_ONES))
        moments.append(time.monotonic())
        self._wrong.move_to_end(client)
        while len(self._wrong) > MAX_CLIENTS:
            self._wrong.popitem(last=False)
