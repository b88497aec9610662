"""Webhooks: what is told to whom, signatures, attempts and pauses, and what a tenant may have."""

import base64
import hashlib
import hmac
import json
import threading

import pytest
from prometheus_client import CollectorRegistry

from relaxd.contract.request import CompileRequest
from service.db import outbox
from service.domain import HookEvent
from service.errors import TooManyWebhooks, UnknownWebhook
from service.identity import DEFAULT
from service.jobs import Jobs
from service.usecases.auditing import Change
from service.usecases.jobs.deleting import delete_tenant
from service.usecases.registry import models
from service.usecases.store import holdings
from service.usecases.tenants import tenants
from service.usecases.webhooks import hooks
from service.usecases.webhooks.delivering import LEASE_S, PAUSES_S, deliver_due, sign
from service.workers.worker import Worker

URL = "https://hooks.example/relaxd"
EVERY = [HookEvent.ALIAS_MOVED, HookEvent.JOB_FINISHED]


class Receiver:
    """Keeps what is sent, and answers with errors in turn."""

    def __init__(self, *errors):
        self.errors, self.messages = list(errors), []

    def __call__(self, url, body, headers):
        self.messages.append((url, body, headers))
        return self.errors.pop(0) if self.errors else None

    @property
    def events(self):
        return [json.loads(body)["type"] for _, body, _ in self.messages]


def create(core, tenant=DEFAULT, events=EVERY):
    return hooks.create(core, tenant, URL, events, "release")


def move_alias(core, tenant=DEFAULT):
    digest = holdings.view(core, tenant).blobs.put(b"a bundle").digest
    models.register(core, tenant, "net", digest=digest, submitter="ci")
    change = Change("release", "alias.move")
    return models.move_alias(core, tenant, "net", "prod", "latest", change)


def test_a_message_is_signed_as_the_specification_has_it():
    """The example of the specification's reference libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    message, time = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    headers = sign(secret, message, time, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-id"] == message
    assert headers["webhook-timestamp"] == str(time)


def test_a_moved_alias_is_told_with_the_move(core):
    new, receiver = create(core), Receiver()
    moved = move_alias(core)
    assert deliver_due(core, receiver) == 1
    ((url, body, headers),) = receiver.messages
    document = json.loads(body)
    assert (url, document["type"]) == (URL, "alias.moved")
    assert document["data"] == {
        "name": "net",
        "alias": "prod",
        "version": moved.version,
        "previous": None,
        "digest": models.resolve(core, DEFAULT, "net", "prod").digest,
        "by": "release",
    }
    key = base64.b64decode(new.secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert deliver_due(core, receiver) == 0
    (delivery,) = hooks.list_deliveries(core, DEFAULT, new.webhook.id)
    assert (delivery.attempts, delivery.next_at, delivery.error) == (1, None, None)
    assert delivery.delivered_at is not None


@pytest.fixture
def worker(core):
    created = Worker(core, slots=1, registry=CollectorRegistry())
    created.sweep()
    yield created
    created.draining.set()
    created.close()


def test_the_end_of_a_job_is_told_also_of_one_from_the_cache(core, jobs, model, worker, clock):
    create(core)
    receiver = Receiver()
    request = CompileRequest.of(targets=["x86-64-v3"])
    job = jobs.submit(model, request)
    assert deliver_due(core, receiver) == 0
    worker.answer(job.builds[0].id)
    deliver_due(core, receiver)
    clock.advance(10)  # for so long the API remembers what it asked of the database
    worker.sweep()
    again = jobs.submit(model, request)
    assert again.state.terminal
    deliver_due(core, receiver)
    ended = [json.loads(body)["data"] for _, body, _ in receiver.messages]
    assert [(one["job"], one["state"]) for one in ended] == [
        (job.id, "succeeded"),
        (again.id, "succeeded"),
    ]
    assert ended[0]["builds"] == [{"target": "x86-64-v3", "state": "succeeded"}]


def test_an_inspection_is_not_told(core, jobs, model, answer):
    create(core)
    job = jobs.inspect(model, CompileRequest())
    answer(job.builds[0].id)
    assert deliver_due(core, Receiver()) == 0


def test_each_is_told_of_what_it_asked_for(core, jobs, model, answer):
    create(core, events=[HookEvent.JOB_FINISHED])
    receiver = Receiver()
    move_alias(core)
    assert deliver_due(core, receiver) == 0
    answer(jobs.submit(model, CompileRequest()).builds[0].id)
    deliver_due(core, receiver)
    assert receiver.events == ["job.finished"]


def test_attempts_pause_longer_each_time_and_end(core, clock):
    new = create(core)
    receiver = Receiver(*["HTTP 500"] * (len(PAUSES_S) + 1))
    hooks.ping(core, DEFAULT, new.webhook.id)
    for attempt, pause in enumerate(PAUSES_S, 1):
        assert deliver_due(core, receiver) == 1
        (delivery,) = hooks.list_deliveries(core, DEFAULT, new.webhook.id)
        assert (delivery.attempts, delivery.error) == (attempt, "HTTP 500")
        clock.advance(pause - 1)
        assert deliver_due(core, receiver) == 0
        clock.advance(2)
    assert deliver_due(core, receiver) == 1
    clock.advance(30 * 86400)
    assert deliver_due(core, receiver) == 0
    (delivery,) = hooks.list_deliveries(core, DEFAULT, new.webhook.id)
    assert (delivery.next_at, delivery.delivered_at) == (None, None)
    ids = {headers["webhook-id"] for _, _, headers in receiver.messages}
    assert ids == {delivery.id}
    hooks.expire(core)
    assert hooks.list_deliveries(core, DEFAULT, new.webhook.id) == []


def test_a_worker_that_dies_leaves_the_attempt_to_another(core, clock):
    new = create(core)
    hooks.ping(core, DEFAULT, new.webhook.id)

    def die(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deliver_due(core, die)
    receiver = Receiver()
    assert deliver_due(core, receiver) == 0
    clock.advance(LEASE_S + 1)
    assert deliver_due(core, receiver) == 1


def test_one_attempt_is_made_by_one_worker(core):
    """Another looks while the first sends."""
    new, other = create(core), Receiver()
    hooks.ping(core, DEFAULT, new.webhook.id)

    def send(*_):
        assert deliver_due(core, other) == 0

    assert deliver_due(core, send) == 1
    assert other.messages == []


def test_the_messages_of_one_tenant_leave_room_for_those_of_others(core, clock):
    tenants.create(core, "vision")
    theirs, own = create(core, "vision"), create(core)
    for _ in range(20):
        hooks.ping(core, "vision", theirs.webhook.id)
    clock.advance(1)
    hooks.ping(core, DEFAULT, own.webhook.id)
    receiver = Receiver()
    assert deliver_due(core, receiver) == 3
    sent = [json.loads(body)["data"]["webhook"] for _, body, _ in receiver.messages]
    assert sorted(sent) == sorted([theirs.webhook.id, theirs.webhook.id, own.webhook.id])


def test_a_receiver_that_is_waited_for_holds_up_no_other(core):
    tenants.create(core, "vision")
    theirs, own = create(core, "vision"), create(core)
    hooks.ping(core, "vision", theirs.webhook.id)
    hooks.ping(core, DEFAULT, own.webhook.id)
    both = threading.Barrier(2)

    def send(*_):
        both.wait(60)

    assert deliver_due(core, send) == 2


def test_tenants_keep_apart(core):
    tenants.create(core, "vision")
    theirs = create(core, "vision")
    receiver = Receiver()
    move_alias(core)
    assert deliver_due(core, receiver) == 0
    for call in (hooks.remove, hooks.ping, hooks.list_deliveries):
        with pytest.raises(UnknownWebhook):
            call(core, DEFAULT, theirs.webhook.id)
    assert hooks.list_all(core, DEFAULT) == []
    move_alias(core, "vision")
    delete_tenant(core, "vision")
    assert deliver_due(core, receiver) == 0
    assert hooks.list_all(core, "vision") == []


def test_a_tenant_cannot_fill_the_database(core, monkeypatch):
    monkeypatch.setattr(hooks, "MOST_WEBHOOKS", 1)
    monkeypatch.setattr(outbox, "MOST_WAITING", 2)
    new = create(core)
    with pytest.raises(TooManyWebhooks):
        create(core)
    for _ in range(4):
        hooks.ping(core, DEFAULT, new.webhook.id)
    assert len(hooks.list_deliveries(core, DEFAULT, new.webhook.id)) == 2


def test_what_waits_for_a_removed_webhook_is_not_sent(core, jobs: Jobs):
    new = create(core)
    hooks.ping(core, DEFAULT, new.webhook.id)
    hooks.remove(core, DEFAULT, new.webhook.id)
    assert deliver_due(core, Receiver()) == 0
