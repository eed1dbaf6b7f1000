"""What there is to see, one file a view: what is asked, and how it is read."""

from typing import Any

from supervisor.page.view import View
from supervisor.page.views.job import JOB
from supervisor.page.views.jobs import JOBS
from supervisor.page.views.kinds import KIND, KINDS
from supervisor.page.views.overview import OVERVIEW
from supervisor.page.views.records import AUDIT, NOTICES, SCHEDULES, WORKERS

VIEWS: tuple[View[Any], ...] = (OVERVIEW, JOBS, JOB, KINDS, KIND, SCHEDULES, WORKERS, NOTICES, AUDIT)
