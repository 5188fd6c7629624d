"""What is stored. Knows nothing of Celery.

The host's side is here: `open_case` and `Target`.
"""

from expunge.models.cases import Opened, open_case
from expunge.models.targets import Target

__all__ = ["Opened", "Target", "open_case"]
