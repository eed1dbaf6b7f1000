"""A user's app with the page in it, for a server process of its own."""

import os

from fastapi import FastAPI

from supervisor.page import Actor, JobsPage, Role

app = FastAPI()
app.mount("/background", JobsPage(os.environ["DATABASE_URL"], authenticate=lambda _: Actor("carla", Role.OWNER)))
