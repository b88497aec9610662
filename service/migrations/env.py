"""Runs migrations on the connection that `service.db.upgrade` hands over."""

from alembic import context

from service.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
