"""What is stored. Knows nothing of Celery."""
