"""What is stored. Knows nothing of Celery.

The host's side is here: `track` what you create at stores, `open_case` when it must be gone, and `purge` a conversation
for ever, by the Graph that says what belongs to it.
"""

from expunge.models.cases import Opened, open_case
from expunge.models.graph import ActiveRun, Graph, Member, Reference, Root, Rule, TargetColumns, Unrelated
from expunge.models.inventory import Tracked, track
from expunge.models.purge import purge
from expunge.models.purged import Principal, Purged, PurgeStatus
from expunge.models.targets import Target
from expunge.models.tombstones import is_purged

__all__ = [
    "ActiveRun",
    "Graph",
    "Member",
    "Opened",
    "Principal",
    "PurgeStatus",
    "Purged",
    "Reference",
    "Root",
    "Rule",
    "Target",
    "TargetColumns",
    "Tracked",
    "Unrelated",
    "is_purged",
    "open_case",
    "purge",
    "track",
]
