"""Opens the storage sink of a changefeed: takes its prefix, then puts the parts together."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.delivery.keeper_client import KeeperApi
from penstock.delivery.settings import SinkSettings
from penstock.delivery.storage.checkpoint import CheckpointFile
from penstock.delivery.storage.ddl import SchemaFile, SchemaFiles
from penstock.delivery.storage.layout import layout_of
from penstock.delivery.storage.owner import claim
from penstock.delivery.storage.place import OwnedObjects, open_place
from penstock.delivery.storage.sink import StorageSink
from penstock.encode import Assembler
from penstock.encode.settings import identity
from penstock.files import Files


def open_storage_sink(
    changefeed: str,
    settings: SinkSettings,
    *,
    keeper: KeeperApi,
    assembler: Assembler,
    schema_file: SchemaFile,
    log_uuid: str,
    files: Files,
    clock: Clock,
) -> StorageSink:
    """Raises what `claim` raises. The prefix is this process's until the sink is closed."""
    place = open_place(settings.url, files)
    layout = layout_of(settings.format)
    known = keeper.dispatchers(changefeed)
    mine = claim(
        place,
        clock,
        changefeed=changefeed,
        log_uuid=log_uuid,
        format_name=identity(settings.format, settings.format_options),
        delivered=any(start.last_path or start.progress for start in known.values()),
        anew=not known,
        checkpoint_ts=keeper.checkpoint(changefeed),
    )
    store = OwnedObjects(place.objects, mine.check)
    return StorageSink(
        changefeed,
        layout=layout,
        assembler=assembler,
        store=store,
        keeper=keeper,
        schemas=SchemaFiles(layout, store, schema_file),
        checkpoint=CheckpointFile(
            store,
            clock,
            changefeed,
            epoch=mine.owner.epoch,
            ask_point=lambda known: keeper.recovery_point(changefeed, known),
        ),
        expire_days=settings.expire_days,
        adopted=mine.owner.adopted,
        on_close=mine.close,
    )
