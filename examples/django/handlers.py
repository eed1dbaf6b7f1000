"""The work, and the app that a worker runs. A module of its own, because Django must be set up before its models."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from django.db import close_old_connections, connection, transaction  # noqa: E402
from notes.models import Note  # noqa: E402
from notes.tasks import COUNT_WORDS, CountWords  # noqa: E402

from jobs import App, Handler, JobContext, PermanentError  # noqa: E402


def count_words(payload: CountWords, job: JobContext) -> None:
    """A plain function runs in a thread, where the ORM may block. Its effect and its success commit together."""
    close_old_connections()  # what a request does for itself: one that the server has closed is opened again
    with transaction.atomic():
        note = Note.objects.select_for_update().filter(pk=payload.note_id).first()
        if note is None:
            raise PermanentError(f"there is no note {payload.note_id}")
        note.words = len(note.text.split())
        note.save(update_fields=["words"])
        job.complete_in(connection)


def production() -> App:
    return App(handlers=[Handler(COUNT_WORDS, count_words)])
