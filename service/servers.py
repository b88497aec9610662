"""URLs of servers that fail over: several hosts of PostgreSQL, and Redis behind Sentinels."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

BROKERS = ("redis", "rediss", "sentinel")
_HOSTS = re.compile(
    r"(?P<kind>[a-z+0-9]+://(?:[^@/?]*@)?)(?P<hosts>[^@/?]+,[^@/?]+)(?P<rest>(?:[/?].*)?)"
)


@dataclass(frozen=True)
class Sentinels:
    """Redis behind Sentinels: their addresses in the form of Celery, and the name by which they
    know the primary.
    """

    url: str
    primary: str


def read_sentinels(url: str) -> Sentinels | None:
    """Read `sentinel://[:PASSWORD@]HOST:PORT,HOST:PORT/DATABASE?master_name=NAME`, of which the
    password is that of Redis; None for another kind of URL. Raises ValueError without a name.

    Addresses may also be separated as Celery has them, by `;sentinel://`.
    """
    if urlsplit(url).scheme != "sentinel":
        return None
    addresses, _, query = url.partition("?")
    names = parse_qs(query).get("master_name")
    if not names:
        raise ValueError(
            "Sentinels need the name of the primary; "
            "write it as in sentinel://one:26379,two:26379/0?master_name=mymaster"
        )
    texts = re.split("[,;]", addresses)
    parts = [urlsplit(text if "://" in text else f"sentinel://{text}") for text in texts]
    database = next((part.path for part in parts if part.path.strip("/")), "/0")
    first, *others = (f"sentinel://{part.netloc}" for part in parts)
    return Sentinels(";".join([first + database, *others]), names[0])


def check_broker(url: str) -> None:
    """Raise ValueError for a URL that is none of a broker."""
    kind = urlsplit(url).scheme
    if kind not in BROKERS:
        raise ValueError(
            f"{kind or url}:// is not a supported broker: use redis://HOST:6379/0, or unset it"
        )
    read_sentinels(url)


def spread_hosts(url: str) -> str:
    """Write the hosts of a PostgreSQL URL as SQLAlchemy takes several: as parameters of the query.
    Of several, the driver takes the first that accepts writes, unless the URL says otherwise.
    """
    if (parts := _HOSTS.fullmatch(url)) is None:
        return url
    path, _, query = parts["rest"].partition("?")
    hosts = [f"host={host}" for host in parts["hosts"].split(",")]
    mode = [] if "target_session_attrs=" in query else ["target_session_attrs=read-write"]
    return f"{parts['kind']}{path or '/'}?{'&'.join([*hosts, *mode, *filter(None, [query])])}"
