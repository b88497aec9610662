"""A database, a broker and a store for pods, which reach them at a gateway."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import psycopg
from sqlalchemy import make_url

from tests.robustness.forwarding import forwarding
from tests.service.servers import postgres_process, redis_process
from tests.support.s3 import s3_server

TOKEN = "the operator's"


@contextmanager
def servers(gateway: str) -> Iterator[dict[str, str]]:
    """PostgreSQL, Redis and S3, which pods reach at the gateway; the values of the secret."""
    with ExitStack() as stack:
        enter = stack.enter_context
        database, broker, store = (
            enter(postgres_process()),
            enter(redis_process()),
            enter(s3_server()),
        )
        with psycopg.connect(database.url, autocommit=True) as operator:
            operator.execute("CREATE DATABASE relaxd")

        def lend(url: str) -> str:
            forwarder = enter(forwarding(("127.0.0.1", int(urlsplit(url).port or 0)), "0.0.0.0"))
            return f"{gateway}:{forwarder.port}"

        yield {
            **store.environment,
            "AWS_ENDPOINT": f"http://{lend(store.endpoint)}",
            "RELAXD_DATABASE_URL": f"postgresql://relaxd@{lend(str(make_url(database.url)))}/relaxd",
            "RELAXD_BROKER_URL": f"redis://{lend(broker.url)}/0",
            "RELAXD_STORE_URL": "s3://relaxd/cluster",
            "RELAXD_TOKEN": TOKEN,
        }
