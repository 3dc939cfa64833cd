"""The rules of a sink over the log: each version of its settings, from its position on."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import BadInput
from penstock.log.position import Position
from penstock.rules.rules import Earlier, Rules
from penstock.rules.sql.rows import NO_SQL, Sql
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion, key_fingerprint, number_at


class VersionedRules:
    """`key`: the key of the masks at hand, if there is one; `sql`: what Spark says of `sql:`. Safe to share between threads, if
    that is."""

    def __init__(self, versions: Sequence[SettingsVersion], key: str | None = None, sql: Sql = NO_SQL) -> None:
        self.versions = tuple(versions) or (SettingsVersion(BEGINNING, 0, RowSettings()),)
        self._key = key_fingerprint(key)
        self.all: list[Rules] = []
        for version in self.versions:
            settings = version.settings
            earlier = Earlier(self.all[-1], version.since, version.table_version) if self.all else None
            own = key if settings.key == self._key else None
            self.all.append(
                Rules(settings.rules, own, settings.wants, earlier, key_id=settings.key, held=version.held, sql=sql)
            )

    def at(self, position: Position) -> Rules:
        """Those that hold at `position`. Raises `BadInput` where their masks need a key that is not at hand."""
        number = number_at(self.versions, position)
        if not self.has_key(number):
            raise BadInput(
                f"rows from {self.versions[number].since} on are masked by another mask_key than the one that is set",
                hint="set the key as it was until they are delivered",
            )
        return self.all[number]

    def has_key(self, number: int) -> bool:
        """Whether the rows of a version can be masked."""
        return self.versions[number].settings.key in ("", self._key)

    @property
    def newest(self) -> Rules:
        return self.all[-1]
