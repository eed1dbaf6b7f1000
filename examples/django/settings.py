"""As small as a site can be: one app, and Oomph's database."""

import os

from psycopg.conninfo import conninfo_to_dict

_given = conninfo_to_dict(os.environ["DATABASE_URL"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _given.get("dbname"),
        "USER": _given.get("user"),
        "PASSWORD": _given.get("password"),
        "HOST": _given.get("host"),
        "PORT": _given.get("port"),
    }
}
INSTALLED_APPS = ["notes"]
ROOT_URLCONF = "urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
