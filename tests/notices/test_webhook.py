"""Notices by webhook: signed, tried again, never sent elsewhere."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.notices.webhook_address import parse_secret, signature
from supervisor.testing import Kit, wait_for
from tests.notices.conftest import APP, add_notice, logs_of, stop_all, wait_sent
from tests.notices.post_office import Hook

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "notices.md").read_text()


def settings(hook: Hook) -> dict[str, str]:
    return {
        "WORKER_WEBHOOK_URL": f"http://127.0.0.1:{hook.port}/services/T0K3N?key=s3cret",
        "WORKER_WEBHOOK_SECRET": SECRET,
        "WORKER_NOTICE_DIGEST_SECONDS": "0",
        "WORKER_POOLS": "system",
    }


def recipe() -> Callable[..., Any]:
    """`verified` as the documentation has it."""
    found = re.search(r"```python\n# hook\.py\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    module: dict[str, Any] = {}
    exec(found[1], module)
    verified: Callable[..., Any] = module["verified"]
    return verified


def test_a_call_is_signed_as_the_readme_says_and_nothing_else_passes(oomph_kit: Kit, hook: Hook) -> None:
    oomph_kit.start(APP, **settings(hook))
    add_notice(oomph_kit.db, "it bürns")
    wait_sent(oomph_kit, notices=1, recipients=1)
    stop_all(oomph_kit)
    (call,) = hook.calls
    assert call.path == "/services/T0K3N?key=s3cret"
    assert call.headers["content-type"] == "application/json"
    verified = recipe()
    told = verified(SECRET, call.headers, call.body)
    assert told["type"] == "oomph.notices"
    assert told["data"]["total"] == 1
    (notice,) = told["data"]["notices"]
    assert (notice["subject"], notice["severity"], notice["body"]) == ("it bürns", "critical", "at the back")
    with pytest.raises(ValueError, match="signature"):
        verified(SECRET, call.headers, call.body + b" ")
    with pytest.raises(ValueError, match="signature"):
        verified("whsec_" + base64.b64encode(bytes(32)).decode(), call.headers, call.body)
    with pytest.raises(ValueError, match="signature"):
        verified(SECRET, call.headers | {"webhook-id": "msg_other"}, call.body)
    with pytest.raises(ValueError, match="too old"):
        verified(SECRET, call.headers | {"webhook-timestamp": "1700000000"}, call.body)


def test_the_signature_is_that_of_the_specification() -> None:
    """The example that Standard Webhooks' own libraries are tested with."""
    key = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_webhook_that_fails_is_called_again_under_the_same_id(oomph_kit: Kit, hook: Hook, tmp_path: Path) -> None:
    hook.answers += [500, 302, 429]
    oomph_kit.start(APP, **settings(hook))
    add_notice(oomph_kit.db)
    wait_sent(oomph_kit, notices=1, recipients=1)
    stop_all(oomph_kit)
    assert len(hook.calls) == 4
    assert {call.path for call in hook.calls} == {"/services/T0K3N?key=s3cret"}  # the redirect was not followed
    assert len({call.headers["webhook-id"] for call in hook.calls}) == 1
    assert len({call.body for call in hook.calls}) == 1
    errors = oomph_kit.db.execute("SELECT error ->> 'message' FROM background_attempts ORDER BY claim").fetchall()
    assert [re.findall(r"answered (\d+)", message)[0] for (message,) in errors] == ["500", "302", "429"]


def test_a_webhook_that_does_not_answer_shows_no_secret(oomph_kit: Kit, hook: Hook, tmp_path: Path) -> None:
    nobody = Hook(port=1)
    oomph_kit.start(APP, **settings(nobody))
    add_notice(oomph_kit.db)
    wait_for(lambda: oomph_kit.db.execute("SELECT FROM background_attempts").fetchone() == (), "a try in vain")
    stop_all(oomph_kit)
    rows = oomph_kit.db.execute(
        "SELECT to_jsonb(a)::text || to_jsonb(j)::text FROM background_attempts AS a JOIN background_jobs AS j "
        "ON j.id = a.job_id"
    ).fetchall()
    assert "the webhook did not answer" in str(rows)
    for secret in ("T0K3N", "s3cret", SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in str(rows) + logs_of(tmp_path)


def test_a_webhook_that_is_gone_is_not_asked_again(oomph_kit: Kit, hook: Hook) -> None:
    hook.answers.append(410)
    oomph_kit.start(APP, **settings(hook))
    add_notice(oomph_kit.db)
    wait_for(
        lambda: oomph_kit.db.execute("SELECT FROM background_jobs WHERE status = 'dead'").fetchone() == (), "its end"
    )
    stop_all(oomph_kit)
    assert len(hook.calls) == 1
    told = json.loads(hook.calls[0].body)
    assert told["data"]["total"] == 1
