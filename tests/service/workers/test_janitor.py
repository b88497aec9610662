import threading
import time
from dataclasses import replace

from service.usecases import auditing
from service.workers.janitor import tidy_until


def test_what_a_worker_collects_by_itself_is_in_the_audit_log(core, clock):
    clock.now = time.time()
    core.store.blobs.put(b"forgotten")
    clock.advance(core.settings.grace_s + 60)
    shutdown = threading.Event()
    often = replace(core, settings=core.settings.model_copy(update={"gc_s": 0.05}))
    janitor = threading.Thread(target=tidy_until, args=(shutdown, often))
    janitor.start()
    try:
        until = time.monotonic() + 60
        while not (entries := auditing.list_entries(core, None, 10)) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        shutdown.set()
        janitor.join()
    assert [(entry.principal, entry.action) for entry in entries] == [("a worker", "gc")]
    assert entries[0].detail == {"removed_blobs": 1, "expired_jobs": 0}
