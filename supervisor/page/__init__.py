"""The Background jobs page: what operators see, and what they may do about it.

    application.py  the app: addresses, and the one guard before all of them
    access.py  tokens.py  token_file.py            who may
    forms.py  headers.py                           what is taken from a browser, and what it is told
    views/          what there is to see             actions.py    what there is to do
    looks.py        one reading for all who look     live.py       and what they are sent when it changes
    serving.py  health.py  connections.py          a process of its own
    rendering.py  visible.py  quantities.py  pictures.py           how it is shown

In an app of your own:

    app.mount("/background", JobsPage(DATABASE_URL, authenticate=who))

where `who(request)` returns an `Actor` or None. As a process of its own: `oomph page`.
"""

from supervisor.page.access import Actor, Role
from supervisor.page.application import JobsPage
from supervisor.page.token_file import read_token_file
from supervisor.page.tokens import TokenError, Tokens, read_tokens

__all__ = ["Actor", "JobsPage", "Role", "TokenError", "Tokens", "read_token_file", "read_tokens"]
