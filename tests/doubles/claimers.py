"""Processes that claim the due entries of one database at once, and say which they got.

    python -m doubles.claimers URL PROCESSES

They are forked from one that has imported everything and opened nothing. First comes the line `begun`; then each prints
one of its own: its number and the ids of what it claimed, or the error that it got.
"""

import os
import sys
import uuid

from expunge.models.claim import claim
from expunge.models.database import Database

AT_ONCE = 3
"""Entries of one claim."""


def claim_all(url: str) -> list[int]:
    """Claim until nothing is left."""
    database = Database.open(url)
    got: list[int] = []
    while True:
        with database.begin() as tx:
            claimed = claim(tx, "mem", token=str(uuid.uuid4()), limit=AT_ONCE, lease_seconds=600.0)
        if not claimed.entries:
            database.close()
            return got
        got += [entry.id for entry in claimed.entries]


def main(url: str, processes: int) -> None:
    """Fork them, let them begin together, and wait for all."""
    wait, begin = os.pipe()
    for number in range(processes):
        if os.fork() == 0:
            os.close(begin)
            os.read(wait, 1)  # ends when the parent closes the other end
            try:
                said = " ".join(map(str, claim_all(url)))
            except BaseException as error:
                said = f"{type(error).__name__} {error}".replace("\n", " ")
            os.write(1, f"{number}: {said}\n".encode())
            os._exit(0)
    os.write(1, b"begun\n")
    os.close(begin)
    for _ in range(processes):
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
