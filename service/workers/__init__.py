"""Worker processes: Celery receives doorbells, a runner runs builds, a sweeper finds lost work."""
