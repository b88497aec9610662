import pytest
from pydantic import ValidationError

from service.settings import Settings


def test_without_urls_everything_is_in_the_data_folder(tmp_path):
    settings = Settings(data_dir=tmp_path)
    assert settings.database == f"sqlite:///{tmp_path}/jobs.sqlite"
    assert settings.store == str(tmp_path / "store")
    assert settings.broker_url is None


def test_another_process_reads_equal_settings_from_the_environment(tmp_path, monkeypatch):
    settings = Settings(
        data_dir=tmp_path,
        token="secret",
        lease_s=7.5,
        database_url="postgresql://db/jobs",
        worker_metrics_port=9100,
    )
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_the_token_is_not_shown(tmp_path):
    assert "secret" not in repr(Settings(data_dir=tmp_path, token="secret"))


@pytest.mark.parametrize(
    ("name", "value"), [("lease_s", 0), ("max_attempts", 0), ("job_timeout_s", -1)]
)
def test_settings_that_cannot_work_are_refused(name, value):
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})
