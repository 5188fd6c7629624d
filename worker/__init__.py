"""What runs it: Celery app, settings, logging, beat schedule, command line, embedded mode."""
