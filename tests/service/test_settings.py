import pytest
from pydantic import SecretStr, ValidationError

from service.errors import InvalidSettings
from service.settings import Settings, read_settings


def test_without_urls_everything_is_in_the_data_folder(tmp_path):
    settings = Settings(data_dir=tmp_path)
    assert settings.database == f"sqlite:///{tmp_path}/jobs.sqlite"
    assert settings.store == str(tmp_path / "store")
    assert settings.broker_url is None


def test_another_process_reads_equal_settings_from_the_environment(tmp_path, monkeypatch):
    settings = Settings(
        data_dir=tmp_path,
        token=SecretStr("secret"),
        lease_s=7.5,
        database_url="postgresql://db/jobs",
        worker_metrics_port=9100,
    )
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_the_token_is_not_shown(tmp_path):
    assert "secret" not in repr(Settings(data_dir=tmp_path, token=SecretStr("secret")))


@pytest.mark.parametrize(
    ("name", "value"), [("lease_s", 0), ("max_attempts", 0), ("job_timeout_s", -1)]
)
def test_settings_that_cannot_work_are_refused(name, value):
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})


@pytest.mark.parametrize("token", ["", "  "])
def test_an_empty_token_does_not_open_the_service(token, monkeypatch):
    monkeypatch.setenv("RELAXD_TOKEN", token)
    with pytest.raises(InvalidSettings, match="RELAXD_TOKEN: the token is empty") as refused:
        read_settings()
    assert refused.value.code == "settings.invalid"


def test_a_mistake_in_a_variable_is_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("RELAXD_LEASE_S", "hunter2")
    with pytest.raises(InvalidSettings, match="RELAXD_LEASE_S") as refused:
        read_settings()
    assert "hunter2" not in str(refused.value)


def test_secrets_are_the_token_and_the_passwords_of_urls(tmp_path):
    settings = Settings(
        data_dir=tmp_path,
        token=SecretStr("t0ken"),
        database_url="postgresql://relaxd:p%40ss@db/jobs",
        broker_url="redis://:hush@redis/0",
    )
    assert set(settings.secrets()) == {"t0ken", "p%40ss", "p@ss", "hush"}
