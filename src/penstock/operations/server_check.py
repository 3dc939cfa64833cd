"""Looks at the server of a configuration, before anything is started: does it answer, and is it ready for capture?"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from penstock.sources.mysql.checks import Check
from penstock.sources.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What was found. `server` is its family and version."""

    server: str
    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        return all(check.passed or not check.required for check in self.checks)


def look_at_server(settings: ServerSettings, *, begun: bool = False) -> ServerReport:
    """Connects, asks, and closes. `begun`: there is a log already. Raises `SourceError` or `Unavailable` where no connection is possible."""
    from penstock.sources.mysql.checks import check_cascades, quoted_user
    from penstock.sources.mysql.connection import connect, where
    from penstock.sources.mysql.family import family_of, server_version
    from penstock.sources.mysql.load.readiness import load_checks
    from penstock.sources.mysql.tables import wanted_tables

    with contextlib.closing(connect(settings)) as connection:
        family = family_of(connection)
        version = server_version(connection)
        name = version if "mariadb" in version.lower() else f"MySQL {version}"
        tables = wanted_tables(connection, settings.tables)
        count = "1 table" if len(tables) == 1 else f"{len(tables):,} tables"
        seen = Check(
            "source.tables",
            bool(tables),
            f"{count} chosen by source.tables" if tables else "source.tables chooses no table that this user may see",
            "" if tables else f"GRANT SELECT ON *.* TO {quoted_user(connection)}; or look at source.tables",
            required=False,
        )
        cascades = check_cascades(connection, tables)
        loading = load_checks(connection, settings, begun=begun)
        return ServerReport(f"{name} at {where(settings)}", (*family.checks(connection), seen, *cascades, *loading))
