"""Long texts of a job, whole and as they are, to save: nothing here is shown by the browser."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from supervisor.page.desk import Desk, params_of
from supervisor.page.views.job import JOB, JobShown
from supervisor.page.views.questions import found

FILE_PATH = "/jobs/{id:row_id}/files/{name}.txt"


async def send_file(desk: Desk, request: Request) -> Response:
    """The payload, the result, or the output of one attempt. Raises `Refused`, `DatabaseUnavailable`."""
    params = params_of(request)
    look = await desk.looks.look(JOB, JOB.ask(params))
    text = found(_text(look.shown, params["name"]), "This text")
    name = f"job-{look.shown.job.id}-{params['name']}.txt"
    return PlainTextResponse(text, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _text(shown: JobShown, name: str) -> str | None:
    if name == "payload":
        return shown.payload
    if name == "result":
        return shown.result or None
    outputs = {f"output-{attempt.claim}": attempt.output_tail for attempt in shown.attempts}
    return outputs.get(name)
