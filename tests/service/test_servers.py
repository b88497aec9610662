"""URLs of servers that fail over."""

import pytest
from sqlalchemy import make_url

from service.adapters.celery_doorbell import celery_app
from service.errors import InvalidSettings
from service.servers import Sentinels, read_sentinels, spread_hosts
from service.settings import read_settings

SENTINELS = {
    "sentinel://one:1,two:2/3?master_name=m": "sentinel://one:1/3;sentinel://two:2",
    "sentinel://:p%2Cw@one,two?master_name=m": "sentinel://:p%2Cw@one/0;sentinel://two",
    "sentinel://one:1;sentinel://two:2/3?master_name=m": "sentinel://one:1/3;sentinel://two:2",
    "sentinel://one?master_name=m": "sentinel://one/0",
}


@pytest.mark.parametrize(("url", "expected"), SENTINELS.items(), ids=range(len(SENTINELS)))
def test_sentinels_are_read(url: str, expected: str) -> None:
    assert read_sentinels(url) == Sentinels(expected, "m")


def test_redis_itself_is_no_sentinel() -> None:
    assert read_sentinels("redis://one:6379/0") is None


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("sentinel://one:1,two:2/0", "master_name=mymaster"),
        ("amqp://one", "amqp:// is not a supported broker"),
    ],
)
def test_a_broker_that_would_fail_at_the_first_submission_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, url: str, named: str
) -> None:
    monkeypatch.setenv("RELAXD_BROKER_URL", url)
    with pytest.raises(InvalidSettings, match=f"RELAXD_BROKER_URL: .*{named}"):
        read_settings()


def test_passwords_of_a_list_of_hosts_are_secrets(tmp_path) -> None:
    settings = read_settings(
        data_dir=tmp_path,
        broker_url="sentinel://:hush@one:1,two:2/0?master_name=m",
        database_url="postgresql://relaxd:quiet@one:1,two:2/jobs",
    )
    assert set(settings.secrets()) == {"hush", "quiet"}
    app = celery_app(settings)
    assert app.conf.broker_transport_options["master_name"] == "m"
    app.close()


HOSTS = {
    "postgresql://u:p@one:1,two:2/jobs": (["one:1", "two:2"], "u", "read-write"),
    "postgresql+psycopg://u:p@one,two/jobs?target_session_attrs=any": (["one", "two"], "u", "any"),
    "postgresql://one,two/jobs": (["one", "two"], None, "read-write"),
}


@pytest.mark.parametrize(("url", "expected"), HOSTS.items(), ids=range(len(HOSTS)))
def test_hosts_are_spread(url: str, expected: tuple[list[str], str | None, str]) -> None:
    parsed = make_url(spread_hosts(url))
    hosts, mode = parsed.query["host"], parsed.query["target_session_attrs"]
    assert (list(hosts), parsed.username, mode) == expected
    assert parsed.database == "jobs"


@pytest.mark.parametrize(
    "url", ["postgresql://u:p,w@one/jobs", "sqlite:////a,b/jobs", "postgresql:///jobs?host=a,b"]
)
def test_other_urls_stay_as_they_are(url: str) -> None:
    assert spread_hosts(url) == url
