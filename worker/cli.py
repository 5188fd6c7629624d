"""The command line: the group and what all commands share."""

import click


@click.group()
def main() -> None:
    """Finish erasures, and keep receipts."""
