"""Worker processes: Celery hears doorbells, a runner does builds in child processes, a sweeper
finds lost work.
"""
