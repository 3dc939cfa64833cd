"""The progress objects of all sinks, and whether a new log can begin where they say."""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.changefeed.recovery_point import RecoveryPoint, schemas_digest, schemas_of
from penstock.delivery.storage.layout import METADATA_PATH, OWNER_PATH, PROGRESS_PATH, Layout, layout_of
from penstock.delivery.storage.owner import Owner
from penstock.delivery.storage.place import SinkPlace, open_place
from penstock.delivery.storage.progress import read_progress
from penstock.delivery.storage.progress import schemas_digest as digest_in
from penstock.encode import open_format
from penstock.encode.format import FileFormat
from penstock.encode.settings import identity
from penstock.errors import BadInput, Corruption
from penstock.files import RealFiles
from penstock.files.private import users_umask
from penstock.operations.config.model import Config, changefeed_settings
from penstock.rules.versions import RowSettings
from penstock.schema.model import TableSchema
from penstock.secret import harmless
from penstock.sources.source import ANEW


@dataclass(frozen=True, slots=True)
class SinkPoint:
    """One sink, and the point in its progress object. `newest`: the largest commit_ts that the sink says it has."""

    name: str
    place: SinkPlace
    layout: Layout
    format: FileFormat
    format_identity: str
    settings: RowSettings
    refuses: bool
    point: RecoveryPoint
    newest: int

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables at the point, and where several are one at the sink, those that are gone. Raises `Corruption` where the
        sink does not have them."""
        where = f"{self.place.where}/{self.point.schemas}"
        found = self.place.objects.read(self.point.schemas)
        if found is None:
            raise Corruption(f"{where} is gone", hint="restore the files of the sink, then start again")
        if schemas_digest(found.data) != digest_in(self.point.schemas):
            raise Corruption(
                f"{where} is not what was written there", hint="restore the files of the sink, then start again"
            )
        return schemas_of(found.data, where)


def read_points(config: Config) -> list[SinkPoint]:
    """Of every sink. Raises `BadInput` where one of them cannot be gone on with, and says why."""
    return [_read_point(config, name) for name in config.sinks]


def _read_point(config: Config, name: str) -> SinkPoint:
    sink = config.sinks[name]
    place = open_place(sink.url, RealFiles(shared_umask=users_umask()))
    where = harmless(place.where)
    found = place.objects.read(PROGRESS_PATH)
    value = read_progress(found, where) if found is not None else None
    if value is None or value["point"] is None:
        what = f"has no {PROGRESS_PATH}" if value is None else f"has no point of the source in {PROGRESS_PATH} yet"
        raise BadInput(f"{name}: {where} {what}, so nothing says where to go on", hint=ANEW)
    owner = place.objects.read(OWNER_PATH)
    feed = Owner.from_bytes(owner.data, where).changefeed if owner is not None else value["changefeed"]
    if name not in (feed, value["changefeed"]) or feed != value["changefeed"]:
        raise BadInput(
            f"{name}: {where} holds the files and the progress of feed {value['changefeed']}",
            hint=f"call the sink {value['changefeed']} in the configuration, or give {name} a new prefix",
        )
    point = RecoveryPoint.from_json(value["point"])
    key = config.mask_key.reveal() if config.mask_key is not None else None
    settings = RowSettings.of(changefeed_settings(config, name), key)
    if settings != point.settings:
        raise BadInput(
            f"{name}: the rows at {where} were made by other settings: {point.settings.difference(settings)}",
            hint="set them as they were, recover with penstock run --once --recover-from-sink, then change them",
        )
    return SinkPoint(
        name,
        place,
        layout_of(sink.format),
        open_format(sink.format, sink.format_options),
        identity(sink.format, sink.format_options),
        settings,
        sink.poison == "dead-letter",
        point,
        max(value["checkpoint_ts"], _checkpoint(place), point.commit_ts, point.position.commit_ts),
    )


def _checkpoint(place: SinkPlace) -> int:
    found = place.objects.read(METADATA_PATH)
    try:
        return int(json.loads(found.data)["checkpoint-ts"]) if found is not None else 0
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{place.where}/{METADATA_PATH} cannot be read: {error!r}") from error


def oldest(points: list[SinkPoint]) -> SinkPoint:
    """The sink that is furthest behind. Raises `BadInput` where the places cannot be compared."""
    for one in points:
        if all(_is_at_or_after(other.point, one.point) for other in points):
            return one
    places = ", ".join(f"{one.name} at {one.point.position}" for one in points)
    raise BadInput(
        f"the sinks are at places of the source that cannot be compared: {places}",
        hint="recover one sink at a time: take the others out of the configuration, and give them a new url later",
    )


def _is_at_or_after(point: RecoveryPoint, other: RecoveryPoint) -> bool:
    return point.position == other.position or point.position.reaches(other.position)
