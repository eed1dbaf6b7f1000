"""An app whose process takes a moment to go after its worker has ended, as one with much to free does."""

import atexit
import time

from tests.worker.app import app

__all__ = ["app"]

atexit.register(time.sleep, 1)
