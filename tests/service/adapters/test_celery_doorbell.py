import structlog

from service.adapters.celery_doorbell import ENOUGH, CeleryDoorbell, celery_app
from service.settings import Settings
from tests.service.servers import free_port


def test_a_broker_that_is_away_costs_a_warning_and_nothing_else(tmp_path):
    app = celery_app(Settings(data_dir=tmp_path, broker_url=f"redis://127.0.0.1:{free_port()}/0"))
    with structlog.testing.capture_logs() as logs:
        CeleryDoorbell(app).ring("build", "native")
    app.close()
    assert [(entry["log_level"], entry["build_id"]) for entry in logs] == [("warning", "build")]


def test_no_more_messages_wait_than_could_wake_anybody(tmp_path):
    settings = Settings(data_dir=tmp_path)
    app = celery_app(settings)
    doorbell = CeleryDoorbell(app)
    for number in range(ENOUGH + 5):
        doorbell.ring(f"build-{number}", "native")
    doorbell.ring("another", "aarch64")
    app.close()
    waiting = {folder.name: len(list(folder.iterdir())) for folder in settings.spool_dir.iterdir()}
    assert waiting == {"relaxd.native": ENOUGH, "relaxd.aarch64": 1}
