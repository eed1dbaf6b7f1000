from django.urls import path
from notes import views

urlpatterns = [path("notes", views.create_note), path("notes/<int:note_id>", views.read_note)]
