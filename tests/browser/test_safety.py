"""What comes from the database is text, the page's policy holds, and who may not act does not."""

from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from tests.browser.conftest import OWNER_TOKEN, VIEWER_TOKEN, Site, Tabs
from tests.browser.test_actions import make

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'>"
HOSTILE = f'"><svg onload="window.ran = true">{SCRIPT}{{{{ 7 * 7 }}}}\u202etxt.exe\x1b[2J'


def test_nothing_hostile_runs_in_any_view(tab: "Page", site: Site) -> None:
    kind = "x-<script>window.ran=true</script>"
    site.db.execute("INSERT INTO background_kinds (kind, pool, secret_paths) VALUES (%s, 'system', '{}')", [kind])
    job_id = make(
        site, kind=kind, status="dead", attempt=1, claim=1, organization_id=HOSTILE, dedupe_key=HOSTILE,
        concurrency_key=HOSTILE, progress_note=HOSTILE, schedule=HOSTILE, payload=Jsonb({HOSTILE: [HOSTILE]}),
        error=Jsonb({"type": HOSTILE, "message": HOSTILE, "frames": HOSTILE}), result=Jsonb({"r": HOSTILE}),
    )  # fmt: skip
    site.db.execute(
        """INSERT INTO background_attempts (job_id, claim, attempt, kind, host, verdict, evidence, charged, is_kill,
               signal, error, output_tail) VALUES (%s, 1, 1, %s, %s, %s, %s, true, true, %s, %s, %s)""",
        [job_id, kind, HOSTILE, HOSTILE, Jsonb({HOSTILE: HOSTILE}), HOSTILE, Jsonb({"type": HOSTILE}), HOSTILE],
    )
    site.db.execute(
        "INSERT INTO background_notices (severity, subject, body) VALUES ('critical', %s, %s)", [HOSTILE, HOSTILE]
    )
    site.db.execute(
        "INSERT INTO background_audit (actor, action, target, reason) VALUES (%s, %s, %s, %s)", [HOSTILE] * 4
    )
    for path in ("/", "/jobs", f"/jobs/{job_id}", "/kinds", "/notices", "/audit", "/kind?name=" + kind):
        tab.goto(site.address + path)
        tab.wait_for_load_state("load")
        assert tab.evaluate("window.ran") is None, path
        assert tab.evaluate("document.querySelectorAll('svg[onload], img[src=x], body script').length") == 0, path
        told = tab.content()
        assert "\u202e" not in told, path
        assert "\x1b" not in told, path
    site.db.execute("DELETE FROM background_jobs WHERE id = %s", [job_id])
    site.db.execute("DELETE FROM background_kinds WHERE kind = %s", [kind])


def test_the_policy_lets_no_other_script_or_style_in(tabs: Tabs, site: Site) -> None:
    tabs.forgive("Content Security Policy", "example.invalid")
    tab = tabs.open()
    tab.goto(site.path("jobs"))
    broken: list[Any] = tab.evaluate(
        """() => new Promise((resolve) => {
          const broken = [];
          document.addEventListener("securitypolicyviolation", (event) => {
            broken.push(event.effectiveDirective);
            if (broken.length === 4) resolve(broken.sort());
          });
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          const button = document.createElement("button");
          button.setAttribute("onclick", "window.ran = true");
          const style = document.createElement("style");
          style.textContent = "body { display: none }";
          const image = document.createElement("img");
          image.src = "https://example.invalid/pixel.png";
          document.body.append(script, button, style, image);
          button.click();
        })"""
    )
    assert broken == ["img-src", "script-src-attr", "script-src-elem", "style-src-elem"]
    assert tab.evaluate("window.ran") is None
    assert tab.get_by_role("heading", level=1).is_visible()


def sign_in(tab: "Page", address: str, token: str) -> None:
    tab.goto(address)
    tab.get_by_label("Token").fill(token)
    tab.get_by_role("button", name="Sign in").click()


def test_who_has_no_token_or_a_wrong_one_sees_nothing(tabs: Tabs, guarded: str) -> None:
    tabs.forgive("status of 401")
    tab = tabs.open()
    tab.goto(f"{guarded}/jobs")
    assert tab.get_by_role("heading", level=1).inner_text() == "Sign in"
    sign_in(tab, f"{guarded}/jobs", "not-the-token-of-anybody")
    assert "not known" in tab.get_by_role("alert").inner_text()
    assert tab.get_by_role("table").count() == 0


def test_a_viewer_looks_and_is_offered_no_action(tabs: Tabs, guarded: str, site: Site) -> None:
    tabs.forgive("status of 401", "status of 403")
    tab = tabs.open()
    sign_in(tab, f"{guarded}/jobs/{site.room.dead}", VIEWER_TOKEN)
    tab.get_by_text("grace, viewer").wait_for()
    assert "extract-tables" in tab.get_by_role("heading", level=1).inner_text()
    assert tab.get_by_role("link", name="Retry").count() == 0
    answer = tab.goto(f"{guarded}/jobs/{site.room.dead}/retry")
    assert answer is not None
    assert answer.status == 403


def test_an_owner_acts_under_their_name_and_signs_out(tabs: Tabs, guarded: str, site: Site) -> None:
    job_id = make(site)
    tabs.forgive("status of 401")
    tab = tabs.open()
    sign_in(tab, f"{guarded}/jobs/{job_id}/cancel", OWNER_TOKEN)
    tab.get_by_label("Reason, for the audit").fill("signed in")
    tab.get_by_role("button", name="Cancel the job").click()
    tab.wait_for_url("**done=cancel")
    actor = site.db.execute("SELECT actor FROM background_audit WHERE target = %s", [f"job {job_id}"]).fetchall()
    assert actor == [("ada",)]
    (cookie,) = [each for each in tab.context.cookies() if each["name"].startswith("oomph_session")]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    tab.get_by_role("button", name="Sign out").click()
    tab.goto(f"{guarded}/jobs")
    assert tab.get_by_role("heading", level=1).inner_text() == "Sign in"
