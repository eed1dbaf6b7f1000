from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from jobs import enqueue
from notes.models import Note
from notes.tasks import COUNT_WORDS, CountWords


@csrf_exempt
@require_POST
def create_note(request: HttpRequest) -> JsonResponse:
    """Store a note and enqueue the counting of its words: both or neither."""
    try:
        with transaction.atomic():
            note = Note.objects.create(slug=request.POST["slug"], text=request.POST["text"])
            enqueue(connection, COUNT_WORDS, CountWords(note_id=note.pk))
    except IntegrityError:
        return JsonResponse({"error": "there is a note of this name"}, status=409)
    return JsonResponse({"id": note.pk}, status=201)


def read_note(request: HttpRequest, note_id: int) -> JsonResponse:
    note = get_object_or_404(Note, pk=note_id)
    return JsonResponse({"slug": note.slug, "words": note.words})
