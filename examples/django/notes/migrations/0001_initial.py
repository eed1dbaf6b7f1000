from typing import Any

from django.db import migrations, models

from jobs.migrate import apply


def oomph(_: Any, editor: Any) -> None:
    """Oomph's tables, so that `migrate` and the databases of Django's own tests have them; again in a new migration
    after each upgrade of Oomph."""

    def execute(sql: str) -> list[Any]:
        with editor.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []

    apply(execute)


class Migration(migrations.Migration):
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.RunPython(oomph, migrations.RunPython.noop),
        migrations.CreateModel(
            name="Note",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slug", models.SlugField(unique=True)),
                ("text", models.TextField()),
                ("words", models.IntegerField(null=True)),
            ],
        ),
    ]
