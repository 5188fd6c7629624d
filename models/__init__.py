"""What is stored. Knows nothing of Celery.

The host's side is here: `track` what you create at stores, and `open_case` when it must be gone.
"""

from expunge.models.cases import Opened, open_case
from expunge.models.inventory import Tracked, track
from expunge.models.targets import Target

__all__ = ["Opened", "Target", "Tracked", "open_case", "track"]
