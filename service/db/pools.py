"""Declared pools of workers, by which the view `scaling` counts builds."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select, text

from service.db.engine import Database
from service.db.schema import pools as table
from service.pools import Pool


def declare(db: Database, pools: Sequence[Pool]) -> None:
    """Let the database know these pools and no other; raises DatabaseUnavailable."""
    wanted = {
        (pool.name, capability, pool.above) for pool in pools for capability in pool.capabilities
    }
    columns = (table.c.pool, table.c.capability, table.c.above)
    with db.read() as connection:
        if {tuple(row) for row in connection.execute(select(*columns))} == wanted:
            return
    with db.write() as connection:
        connection.execute(delete(table))
        if wanted:
            names = [column.name for column in columns]
            rows = [dict(zip(names, row, strict=True)) for row in sorted(wanted)]
            connection.execute(insert(table), rows)
        if connection.dialect.name == "postgresql":
            # It would never do so by itself for so few rows, and take them for one.
            connection.execute(text("ANALYZE pools"))
