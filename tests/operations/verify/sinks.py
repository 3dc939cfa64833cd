"""A sink filled from a log without Spark: the same entries, encoders, names of files and cursor as in a flow, one process."""

from __future__ import annotations

from penstock.capture.loop import Capture, open_log
from penstock.delivery.storage.layout import date_of, layout_of
from penstock.delivery.storage.place import open_place
from penstock.encode import open_format
from penstock.files import REAL_FILES, Buffer
from penstock.log import Cursor, LogReader
from penstock.operations.config.model import Config
from penstock.operations.verify.log_replay import LogReplay
from penstock.schema.changes import ChangeBatch
from penstock.sources.source import Source

ROWS_MAX = 700  # of a payload


def capture(config: Config, source: Source) -> None:
    """Everything that the source has now, into the log."""
    log = open_log(config.state_dir)
    try:
        assert Capture(log, source).run(until_now=True)
    finally:
        log.close()


def deliver(config: Config) -> None:
    """Everything that the log has, to every sink; no sink has anything yet."""
    reader = LogReader.open(config.state_dir / "log")
    for name, settings in config.sinks.items():
        fmt, layout = open_format(settings.format, settings.format_options), layout_of(settings.format)
        objects = open_place(settings.url, REAL_FILES).objects
        payloads: dict[str, list[Buffer]] = {}
        for batch, _ in LogReplay(reader, (config.source.tables,), reader.end()).changes():
            for start in range(0, len(batch), ROWS_MAX):
                part: ChangeBatch = batch.slice(start, min(start + ROWS_MAX, len(batch)))
                table = batch.table
                directory = layout.data_directory(
                    table.schema, table.table, table.version, date_of(int(part.commit_ts[0]))
                )
                payloads.setdefault(directory, []).append(fmt.encode(part))
        for directory, each in payloads.items():
            files = [each[at : at + 3] for at in range(0, len(each), 3)]
            for number, some in enumerate(files, 1):
                objects.put(layout.data_path(directory, number), fmt.assemble(some))
            last = layout.data_path(directory, len(files)).rpartition("/")[2]
            objects.put(layout.index_path(directory), f"{last}\n".encode())
        cursor = Cursor.open(reader, config.state_dir / "cursors", name, start="earliest")
        cursor.mark_delete(reader.end()).result()
        cursor.close()
    reader.close()
