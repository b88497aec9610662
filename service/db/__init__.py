"""The job database: tables, transactions and migrations."""
