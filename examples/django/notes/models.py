from django.db import models


class Note(models.Model):
    slug = models.SlugField(unique=True)
    text = models.TextField()
    words = models.IntegerField(null=True)
