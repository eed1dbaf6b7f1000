"""What there is to see, one file a view: what is asked, and how it is read."""

from typing import Any

from supervisor.page.desk import View
from supervisor.page.views.job import JOB
from supervisor.page.views.jobs import JOBS

VIEWS: tuple[View[Any], ...] = (JOBS, JOB)
