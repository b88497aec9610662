import threading
from queue import Empty

import pytest
from kombu import Connection

from service.adapters.spool_transport import Transport


@pytest.fixture
def connect(tmp_path):
    opened = []

    def connect():
        opened.append(
            Connection(
                transport=Transport,
                transport_options={"folder": str(tmp_path), "polling_interval": 0.01},
            )
        )
        return opened[-1]

    yield connect
    for connection in opened:
        connection.release()


def drain(queue):
    results = []
    while True:
        try:
            message = queue.get(block=False)
        except Empty:
            return results
        message.ack()
        results.append(message.payload)


def test_messages_come_in_order_each_once_and_by_queue(connect):
    sender, receiver = connect().SimpleQueue("one"), connect().SimpleQueue("one")
    other = connect().SimpleQueue("two")
    for number in range(3):
        sender.put({"number": number})
    assert sender.qsize() == 3
    assert drain(other) == []
    assert drain(receiver) == [{"number": number} for number in range(3)]
    assert drain(sender) == []


def test_receivers_share_the_messages(connect):
    sender = connect().SimpleQueue("one")
    for number in range(40):
        sender.put(number)
    results = []
    threads = [
        threading.Thread(target=lambda: results.extend(drain(connect().SimpleQueue("one"))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(40))


def test_a_message_half_written_is_not_seen(connect, tmp_path):
    queue = connect().SimpleQueue("one")
    (tmp_path / "one").mkdir(exist_ok=True)
    (tmp_path / "one" / ".0001-partial").write_text('{"body": ')
    assert drain(queue) == []
    assert queue.clear() == 0
