"""What is wrong with the settings of notices is said at the start, without what is secret in them."""

import pytest

from supervisor.notices.mail_server import MailServer, Security, is_address, parse_smtp_url
from supervisor.settings import Settings, SettingsError, load_settings

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
OWNERS = {"WORKER_OWNERS": "ada@example.org"}


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings()


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtps://mail.example.org", MailServer(host="mail.example.org", port=465, security=Security.TLS)),
        (
            "smtps://ada%40example.org:p%3Aw%2F@mail.example.org:4465",
            MailServer(
                host="mail.example.org", port=4465, security=Security.TLS, user="ada@example.org", password="p:w/"
            ),
        ),
        ("smtp://mail.example.org?starttls", MailServer(host="mail.example.org", port=587, security=Security.STARTTLS)),
        ("smtp://[::1]:2525", MailServer(host="::1", port=2525, security=Security.NONE)),
        ("smtp://localhost", MailServer(host="localhost", port=25, security=Security.NONE)),
    ],
)
def test_a_url_says_where_and_how(url: str, server: MailServer) -> None:
    assert parse_smtp_url(url) == server


def test_a_server_shows_no_password() -> None:
    assert "hunter2" not in repr(parse_smtp_url("smtps://ada:hunter2@mail.example.org"))


@pytest.mark.parametrize(
    "url",
    [
        "smtp://ada:hunter2@mail.example.org",  # in the clear
        "smtp://ada:hunter2@mail.example.org?starttls=no",
        "smtps://ada:hunter2@mail.example.org:99999",
        "smtps://ada:hunter2@mail.example.org:0",
        "smtps://ada:hunter2@",
        "smtps://hunter2@mail.example.org",
        "https://ada:hunter2@mail.example.org",
        "smtps://ada:hunter2@[mail",
        "hunter2",
    ],
)
def test_a_url_that_is_none_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(SettingsError, match="SMTP_URL must read like") as refused:
        load(monkeypatch, SMTP_URL=url, **OWNERS)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["ada", "ada@", "@example.org", "a b@example.org", "ada@example.org\nBcc: x@y.z", "ädä@example.org"]
)
def test_an_owner_is_an_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    assert not is_address(address)
    with pytest.raises(SettingsError, match="an e-mail address such as"):
        load(monkeypatch, WORKER_OWNERS=address, SMTP_URL="smtps://mail.example.org")


def test_settings_that_go_together_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="SMTP_URL is not set"):
        load(monkeypatch, **OWNERS)
    monkeypatch.delenv("WORKER_OWNERS")
    with pytest.raises(SettingsError, match="go together"):
        load(monkeypatch, WORKER_WEBHOOK_URL="https://example.org/hook")


@pytest.mark.parametrize("secret", ["hunter2", "whsec_hunter2", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_")])
def test_a_secret_that_is_none_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    with pytest.raises(SettingsError, match="WORKER_WEBHOOK_SECRET must be whsec_") as refused:
        load(monkeypatch, WORKER_WEBHOOK_URL="https://example.org/hook", WORKER_WEBHOOK_SECRET=secret)
    assert secret not in str(refused.value)


@pytest.mark.parametrize("url", ["example.org/T0K3N", "ftp://example.org/T0K3N", "https://ada:T0K3N@example.org/"])
def test_an_address_that_cannot_be_called_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(SettingsError, match="WORKER_WEBHOOK_URL must read like") as refused:
        load(monkeypatch, WORKER_WEBHOOK_URL=url, WORKER_WEBHOOK_SECRET=SECRET)
    assert "T0K3N" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["two words", "-x", "a]b", "a\r\nBcc: x@y.z", "\u00fcber", "a" * 41, "<b>", "production\n"]
)
def test_an_installation_has_a_name_that_stands_anywhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(SettingsError, match="a short name such as production is allowed"):
        load(monkeypatch, WORKER_INSTALLATION=name)


@pytest.mark.parametrize(
    "url",
    [
        "jobs.example.org",
        "javascript:alert(1)",
        "https://ada:hunter2@jobs.example.org",
        "https://jobs.example.org/?hunter2",
        "https://jobs.example.org/#hunter2",
        "https://jobs.example.org/hunter2 and more",
        "https://jobs.example.org/hunter2\r\nmore",
        "https://jobs.example.org:99999/hunter2",
        "https:///hunter2",
    ],
)
def test_a_page_has_an_address_that_links_can_begin_with(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(SettingsError, match="WORKER_PAGE_URL must read like") as refused:
        load(monkeypatch, WORKER_PAGE_URL=url)
    assert "hunter2" not in str(refused.value)


def test_an_installation_and_its_page_may_be_named_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch).worker_installation == load(monkeypatch).worker_page_url == ""
    named = load(monkeypatch, WORKER_INSTALLATION="eu-1.prod", WORKER_PAGE_URL="http://[::1]:8642/internal/jobs/")
    assert (named.worker_installation, named.worker_page_url) == ("eu-1.prod", "http://[::1]:8642/internal/jobs/")


def test_settings_show_nothing_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch,
        SMTP_URL="smtps://ada:hunter2@mail.example.org",
        WORKER_WEBHOOK_URL="https://example.org/T0K3N",
        WORKER_WEBHOOK_SECRET=SECRET,
        **OWNERS,
    )
    assert settings.sends_notices
    for secret in ("hunter2", "T0K3N", SECRET):
        assert secret not in repr(settings)


def test_a_mail_server_of_the_apps_own_is_no_matter_without_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load(monkeypatch, SMTP_URL="whatever the app likes").sends_notices
