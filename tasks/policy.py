"""What the settings say to the tasks: the numbers, and where notices go."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where notices go, and the secret that signs them."""

    url: str
    secret: str
    timeout_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of the settings; times in seconds."""

    lease_seconds: float = 300.0
    sweep_seconds: float = 5.0
    retry_base_seconds: float = 2.0
    retry_max_seconds: float = 3600.0
    attempts_before_escalation: int = 15
    refusals_before_escalation: int = 2
    drain_seconds: float = 20.0
    """How long one drain goes on before it lets other lanes have its thread."""
    due_soon_days: tuple[float, ...] = (7.0,)
    """Notices this long before the statutory date of a case with entries left."""
    capabilities_max_age_seconds: float = 86_400.0
    """What was found out about a store is asked again when it is older."""
    threads: int = 4
    """Of this process: a lane gets all but one of them at the most."""
