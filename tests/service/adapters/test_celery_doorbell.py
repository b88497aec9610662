import base64
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import kombu
import pytest
import redis
import structlog

from service.adapters.celery_doorbell import (
    ENOUGH,
    RING_S,
    BackgroundDoorbell,
    CeleryDoorbell,
    celery_app,
)
from service.adapters.messages import TASK, take_dropped
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


def message(**changes):
    """A ring as it is sent, with parts replaced."""
    body = base64.b64encode(json.dumps([["a"], {}, {}]).encode()).decode()
    headers = {"task": TASK, "id": "1"}
    properties = {"body_encoding": "base64", "delivery_tag": "2", "delivery_info": {}}
    return {"body": body, "headers": headers, "properties": properties} | changes


def encode(value):
    return base64.b64encode(json.dumps(value).encode()).decode()


MALFORMED = {
    "no text": b"\xff\xfe",
    "no JSON": b"{",
    "a list": b"[]",
    "an object": b"{}",
    "a number": b"1",
    "null": b"null",
    "a foreign type": b'{"__type__": "datetime", "__value__": 7}',
    "no base64": message(body="*"),
    "a body of bytes": message(body=base64.b64encode(b"\xff").decode()),
    "a body without build": message(body=encode([[], {}, {}])),
    "a build that is no text": message(body=encode([[{}], {}, {}])),
    "another task": message(headers={"task": "x", "id": "1"}),
    "a task that is no text": message(headers={"task": [], "id": "1"}),
    "no headers": message(headers=None),
    "a tag that is no text": message(
        properties={"body_encoding": "base64", "delivery_tag": {}, "delivery_info": {}}
    ),
    "no encoding": message(properties={"delivery_tag": "2"}),
    "deep": b"[" * 100_000,
}


def consume(app, queue, most_s=20.0):
    """The arguments of the first ring that arrives."""
    received = []
    with app.connection_for_read() as connection:
        bound = kombu.Queue(queue, kombu.Exchange(queue), routing_key=queue)

        def take(body, read):
            read.ack()
            received.append(body[0])

        with connection.Consumer([bound], callbacks=[take], accept=["json"]):
            until = time.monotonic() + most_s
            while not received and time.monotonic() < until:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=1)
    return received


@pytest.mark.scaled
@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_message_is_dropped_and_counted(tmp_path, redis_url, content):
    app = celery_app(Settings(data_dir=tmp_path, broker_url=redis_url))
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    take_dropped()
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        client.lpush("relaxd.native", raw)
        CeleryDoorbell(app).ring("build", "native")
        assert client.llen("relaxd.native") == 2
    assert consume(app, "relaxd.native") == [["build"]]
    assert take_dropped() == 1
    app.close()


@pytest.mark.scaled
@pytest.mark.parametrize("late", [False, True], ids=["before the worker", "while it listens"])
def test_a_key_of_another_type_is_removed(tmp_path, redis_url, late):
    app = celery_app(Settings(data_dir=tmp_path, broker_url=redis_url))
    take_dropped()
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

        def disturb():
            client.set("relaxd.native", "no queue")
            while client.type("relaxd.native") != b"none":
                time.sleep(0.05)
            CeleryDoorbell(app).ring("build", "native")

        thread = threading.Timer(1 if late else 0, disturb)
        thread.start()
        if not late:
            time.sleep(0.2)
        assert consume(app, "relaxd.native") == [["build"]]
        thread.join()
    assert take_dropped() == 1
    app.close()


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_of_the_spool_is_dropped_and_counted(tmp_path, content):
    settings = Settings(data_dir=tmp_path)
    app = celery_app(settings)
    take_dropped()
    folder = settings.spool_dir / "relaxd.native"
    folder.mkdir(parents=True)
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "0").write_bytes(raw)
    CeleryDoorbell(app).ring("build", "native")
    assert consume(app, "relaxd.native") == [["build"]]
    assert take_dropped() == 1
    app.close()


@pytest.fixture
def silent_broker():
    """The URL of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def test_a_silent_broker_keeps_nobody(tmp_path, silent_broker):
    settings = Settings(data_dir=tmp_path, broker_url=silent_broker)
    app = celery_app(settings, patience_s=RING_S)
    doorbell = BackgroundDoorbell(CeleryDoorbell(app))
    began = time.monotonic()
    for number in range(5):
        doorbell.ring(str(number), "native")
    assert time.monotonic() - began < 0.5
    until = time.monotonic() + 20
    while doorbell.trouble is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert time.monotonic() - began < 10, "each ring waits a second or a few, not half a minute"
    app.close()


RING = """
import sys
from pathlib import Path
from service.adapters.celery_doorbell import CeleryDoorbell, celery_app, import_parts
from service.settings import Settings

app = celery_app(Settings(data_dir=Path(sys.argv[1]), broker_url=sys.argv[2] or None))
import_parts(app)
known = set(sys.modules)
CeleryDoorbell(app).ring("build", "native")
kinds = ("celery", "kombu", "redis", "service")
print(*(name for name in sys.modules.keys() - known if name.startswith(kinds)))
"""


@pytest.mark.parametrize("broker", ["", "redis://127.0.0.1:{port}/0"])
def test_a_prepared_process_imports_nothing_for_its_first_ring(tmp_path, broker):
    url = broker.format(port=free_port())
    command = [sys.executable, "-c", RING, str(tmp_path), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
