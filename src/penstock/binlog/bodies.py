"""Bodies of the events that say where a transaction begins and ends: FORMAT_DESCRIPTION, GTID, QUERY, XID, ROTATE, XA.

Each parser takes one complete event, header and checksum included, and the format description in force. It raises
`BadEvent` for an event that is too short, and reads nothing beyond it.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass

from penstock.binlog import tagged_gtid as tagged
from penstock.binlog.charset import charset_of, decode_text
from penstock.binlog.errors import BadEvent, not_supported
from penstock.binlog.events import parse_header
from penstock.binlog.types import CHECKSUM_BYTES, HEADER_BYTES, REFUSED_TYPES, EventType, Flavour

Bytes = bytes | bytearray | memoryview

CHECKSUM_NONE = 0
CHECKSUM_CRC32 = 1

# MySQL: the last version that is known not to log the signedness of YEAR columns, and the first that is known to.
_LAST_WITHOUT_SIGNS_OF_YEARS = (8, 0, 20)
_SIGNS_YEARS = (8, 0, 29)

# MariaDB's GTID event, flags2
GTID_STANDALONE = 0x01
GTID_GROUP_COMMIT = 0x02
GTID_TRANSACTIONAL = 0x04
GTID_DDL = 0x20
GTID_PREPARED_XA = 0x40
GTID_COMPLETED_XA = 0x80
# and its extra flags
GTID_MULTI_ENGINE = 0x01
GTID_START_ALTER = 0x02
GTID_COMMIT_ALTER = 0x04
GTID_ROLLBACK_ALTER = 0x08


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """What is needed to read the events that follow: post-header lengths by type, and whether a CRC32 ends each."""

    server_version: str
    flavour: Flavour
    checksum: int  # CHECKSUM_NONE or CHECKSUM_CRC32
    post_header: bytes  # the length for event type t is at index t - 1
    timestamp: int = 0

    @property
    def trailer_bytes(self) -> int:
        """Bytes of checksum at the end of each event."""
        return CHECKSUM_BYTES if self.checksum == CHECKSUM_CRC32 else 0

    def post_header_bytes(self, event_type: int) -> int:
        """The post-header length of a type; 0 for types that this server does not know."""
        return self.post_header[event_type - 1] if 0 < event_type <= len(self.post_header) else 0

    @property
    def table_id_bytes(self) -> int:
        """Width of a table id in TABLE_MAP and row events: 4 in the first servers with rows, 6 since."""
        return 4 if self.post_header_bytes(EventType.TABLE_MAP) == 6 else 6

    @property
    def signs_years(self) -> bool | None:
        """Whether a table map has a bit of signedness for YEAR columns; None for a server that may do either."""
        if self.flavour is Flavour.MARIADB:
            return True
        version = _version(self.server_version) or (0, 0, 0)
        return False if version <= _LAST_WITHOUT_SIGNS_OF_YEARS else True if version >= _SIGNS_YEARS else None


def parse_format_description(event: Bytes) -> FormatDescription:
    """The format that holds from this event on. Old formats without one (binlog version below 4) are refused."""
    header = parse_header(event)
    if header.type in (EventType.START_V3,):
        raise not_supported("binlogs of servers before MySQL 5.0 are not supported", event_type=header.type)
    if header.type != EventType.FORMAT_DESCRIPTION:
        raise BadEvent("a format description was expected here", event_type=header.type)
    size = _checked_size(event)
    if size < HEADER_BYTES + 57:
        raise BadEvent(f"{size} bytes are too short", event_type=header.type)
    version = int.from_bytes(event[19:21], "little")
    if version != 4:
        raise not_supported(f"binlog version {version} is not supported", event_type=header.type)
    server = bytes(event[21:71]).split(b"\0", 1)[0].decode("ascii", "replace")
    if event[75] != HEADER_BYTES:
        raise BadEvent(f"event headers of {event[75]} bytes are unknown", event_type=header.type)
    flavour = Flavour.MARIADB if "mariadb" in server.lower() else Flavour.MYSQL
    tail = 0
    checksum = CHECKSUM_NONE
    if _knows_checksums(server, flavour):
        tail = 1 + CHECKSUM_BYTES
        if size < 76 + tail:
            raise BadEvent(f"{size} bytes are too short", event_type=header.type)
        checksum = event[size - tail]
        if checksum == 255:  # "undefined", which some servers write: as none
            checksum = CHECKSUM_NONE
        if checksum not in (CHECKSUM_NONE, CHECKSUM_CRC32):
            raise BadEvent(f"unknown checksum algorithm {checksum}", event_type=header.type)
    return FormatDescription(server, flavour, checksum, bytes(event[76 : size - tail]), header.timestamp)


def _knows_checksums(server_version: str, flavour: Flavour) -> bool:
    """MySQL from 5.6.1, MariaDB from 5.3: the format description ends with the algorithm and a CRC."""
    version = _version(server_version)
    return version is not None and version >= ((5, 3, 0) if flavour is Flavour.MARIADB else (5, 6, 1))


def _version(server_version: str) -> tuple[int, ...] | None:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", server_version)
    return tuple(int(n) for n in numbers.groups()) if numbers else None


@dataclass(frozen=True, slots=True)
class MysqlGtid:
    """GTID, ANONYMOUS_GTID and GTID_TAGGED. `last_committed` and `sequence` are 0 where the server does not write them."""

    sid: uuid.UUID
    number: int
    anonymous: bool
    last_committed: int = 0
    sequence: int = 0
    immediate_commit_us: int = 0
    original_commit_us: int = 0
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.sid}:{self.tag}:{self.number}" if self.tag else f"{self.sid}:{self.number}"


@dataclass(frozen=True, slots=True)
class Xid:
    """The id of an XA transaction."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        """As XA statements in the binlog write it."""
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


@dataclass(frozen=True, slots=True)
class MariadbGtid:
    """The first event of each transaction of MariaDB. Unless `standalone`, the transaction ends with XID or COMMIT."""

    domain: int
    server_id: int
    sequence: int
    flags2: int
    commit_id: int = 0
    xid: Xid | None = None
    flags_extra: int = 0

    def __str__(self) -> str:
        return f"{self.domain}-{self.server_id}-{self.sequence}"

    @property
    def standalone(self) -> bool:
        return bool(self.flags2 & GTID_STANDALONE)

    @property
    def ddl(self) -> bool:
        return bool(self.flags2 & GTID_DDL)

    @property
    def prepared_xa(self) -> bool:
        return bool(self.flags2 & GTID_PREPARED_XA)

    @property
    def completed_xa(self) -> bool:
        return bool(self.flags2 & GTID_COMPLETED_XA)

    @property
    def alter_without_effect(self) -> bool:
        """A two-phase ALTER only starts or is rolled back here; it takes effect, if ever, with a later GTID."""
        return bool(self.flags_extra & (GTID_START_ALTER | GTID_ROLLBACK_ALTER))


@dataclass(frozen=True, slots=True)
class Query:
    """A logged statement, and what the server says of its session: None where it says nothing.

    `server_charset` is the default of new databases; `database_charset` was set by the session itself, for LOAD DATA.
    """

    schema: str
    sql: str
    thread_id: int
    error_code: int
    client_charset: str
    database_charset: str | None
    server_charset: str | None = None
    sql_mode: int = 0
    time_zone: str | None = None
    explicit_timestamps: bool = True
    flavour: Flavour = Flavour.MARIADB


@dataclass(frozen=True, slots=True)
class Rotate:
    position: int
    file: str


@dataclass(frozen=True, slots=True)
class XaPrepare:
    one_phase: bool
    xid: Xid


def event_body(event: Bytes, fde: FormatDescription, *, least: int = 0) -> memoryview:
    """The event without header and checksum. Raises `BadEvent` where these are fewer than `least` bytes."""
    size = _checked_size(event)
    end = size - fde.trailer_bytes
    if end - HEADER_BYTES < least:
        raise BadEvent(f"{size} bytes are too short", event_type=event[4])
    return memoryview(event)[HEADER_BYTES:end]


def _checked_size(event: Bytes) -> int:
    size = parse_header(event).size
    if size != len(event):
        raise BadEvent(f"its header says {size} bytes, but there are {len(event)}", event_type=event[4])
    return size


def refuse_unsupported(event_type: int, offset: int = 0) -> None:
    """Raises for events that carry changes and that this version does not read."""
    if event_type in REFUSED_TYPES:
        message, hint = REFUSED_TYPES[event_type]
        raise not_supported(message, offset=offset, event_type=event_type, hint=hint)


def parse_gtid(event: Bytes, fde: FormatDescription) -> MysqlGtid:
    """GTID (33), ANONYMOUS_GTID (34) and GTID_TAGGED (42) of MySQL."""
    kind = event[4] if len(event) >= HEADER_BYTES else 0
    if kind == EventType.GTID_TAGGED:
        return _tagged_gtid(bytes(event_body(event, fde)))
    if kind not in (EventType.GTID, EventType.ANONYMOUS_GTID):
        raise BadEvent("a GTID event was expected here", event_type=kind)
    body = event_body(event, fde, least=25)
    sid = uuid.UUID(bytes=bytes(body[1:17]))
    number = int.from_bytes(body[17:25], "little")
    last_committed = sequence = immediate = original = 0
    if len(body) >= 42 and body[25] == 2:
        last_committed, sequence = struct.unpack_from("<QQ", body, 26)
        if len(body) >= 49:
            immediate = int.from_bytes(body[42:49], "little")
            original = immediate
            if immediate >> 55 and len(body) >= 56:
                immediate &= (1 << 55) - 1
                original = int.from_bytes(body[49:56], "little")
    return MysqlGtid(sid, number, kind == EventType.ANONYMOUS_GTID, last_committed, sequence, immediate, original)


def _tagged_gtid(body: bytes) -> MysqlGtid:
    fields = tagged.tagged_fields(body)

    def number(field: int) -> int:
        value = fields.get(field, 0)
        return value if isinstance(value, int) else 0

    sid, immediate = fields[tagged.SID], number(tagged.IMMEDIATE_COMMIT)
    if not isinstance(sid, uuid.UUID):
        raise BadEvent("without a GTID", event_type=EventType.GTID_TAGGED)
    return MysqlGtid(
        sid,
        number(tagged.NUMBER),
        anonymous=False,
        last_committed=number(tagged.LAST_COMMITTED),
        sequence=number(tagged.SEQUENCE),
        immediate_commit_us=immediate,
        original_commit_us=number(tagged.ORIGINAL_COMMIT) or immediate,
        tag=str(fields.get(tagged.TAG, "")),
    )


def parse_mariadb_gtid(event: Bytes, fde: FormatDescription) -> MariadbGtid:
    """GTID (162) of MariaDB, with the XA transaction it prepares or completes."""
    if len(event) < HEADER_BYTES or event[4] != EventType.MARIADB_GTID:
        raise BadEvent("a GTID event was expected here", event_type=event[4] if len(event) > 4 else None)
    body = event_body(event, fde, least=13)
    sequence, domain, flags2 = struct.unpack_from("<QIB", body, 0)
    server_id = int.from_bytes(event[5:9], "little")
    at = 13
    commit_id = 0
    if flags2 & GTID_GROUP_COMMIT:
        if len(body) < at + 8:
            raise BadEvent("cut in the commit id", event_type=event[4])
        commit_id = int.from_bytes(body[at : at + 8], "little")
        at += 8
    xid = None
    if flags2 & (GTID_PREPARED_XA | GTID_COMPLETED_XA):
        if len(body) < at + 6:
            raise BadEvent("cut in the XA id", event_type=event[4])
        format_id, gtrid, bqual = struct.unpack_from("<IBB", body, at)
        at += 6
        if len(body) < at + gtrid + bqual:
            raise BadEvent("cut in the XA id", event_type=event[4])
        xid = Xid(format_id, bytes(body[at : at + gtrid]), bytes(body[at + gtrid : at + gtrid + bqual]))
        at += gtrid + bqual
    extra = body[at] if at < len(body) else 0
    return MariadbGtid(domain, server_id, sequence, flags2, commit_id, xid, extra)


def parse_query(event: Bytes, fde: FormatDescription) -> Query:
    """QUERY: the statement in Unicode, whatever charset the client sent it in."""
    return _query(event, fde, EventType.QUERY, 13)


def _query(event: Bytes, fde: FormatDescription, wanted: EventType, head_bytes: int) -> Query:
    kind = event[4] if len(event) >= HEADER_BYTES else 0
    refuse_unsupported(kind)
    if kind != wanted:
        raise BadEvent(f"a {wanted.name} event was expected here", event_type=kind)
    body = event_body(event, fde, least=head_bytes)
    thread_id, _, schema_len, error_code, status_len = struct.unpack_from("<IIBHH", body, 0)
    at = max(head_bytes, fde.post_header_bytes(wanted))
    if len(body) < at + status_len + schema_len + 1:
        raise BadEvent("cut before its statement", event_type=kind)
    session = _session(body[at : at + status_len], fde.flavour)
    at += status_len
    schema = bytes(body[at : at + schema_len]).decode("utf-8", "replace")
    sql = decode_text(bytes(body[at + schema_len + 1 :]), session.client)
    return Query(
        schema,
        sql,
        thread_id,
        error_code,
        session.client,
        session.database,
        session.server,
        session.sql_mode,
        session.time_zone,
        session.explicit_timestamps,
        fde.flavour,
    )


# Bytes of the status variables of fixed length, by code.
_FIXED_STATUS = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    128: 3,
    129: 8,
    255: 0,  # MariaDB's padding
}
_DATABASES_MAX = 254  # code 12: this many databases and more are not listed
_MARIADB_EXPLICIT_TIMESTAMPS = 1 << 24  # in code 0


@dataclass(slots=True)
class _Session:
    client: str = "utf8mb4"
    database: str | None = None
    server: str | None = None
    sql_mode: int = 0
    time_zone: str | None = None
    explicit_timestamps: bool = True


def _session(status: memoryview, flavour: Flavour) -> _Session:
    """What the status variables say, as far as statements are read by it."""
    session = _Session()
    at = 0
    while at < len(status):
        code = status[at]
        at += 1
        width = _status_width(code, status, at)
        if width is None or at + width > len(status):
            break  # a variable of unknown length; what follows it cannot be read, and is not needed
        value = status[at : at + width]
        if code == 0 and flavour is Flavour.MARIADB:
            session.explicit_timestamps = bool(int.from_bytes(value, "little") & _MARIADB_EXPLICIT_TIMESTAMPS)
        elif code == 1:
            session.sql_mode = int.from_bytes(value, "little")
        elif code == 4:  # client, connection and server
            session.client = charset_of(int.from_bytes(value[0:2], "little")) or session.client
            session.server = charset_of(int.from_bytes(value[4:6], "little"))
        elif code == 5:
            session.time_zone = bytes(value[1:]).decode("utf-8", "replace")
        elif code == 8:
            session.database = charset_of(int.from_bytes(value[0:2], "little"))
        elif code == 16:
            session.explicit_timestamps = bool(value[0])
        at += width
    return session


def _status_width(code: int, status: memoryview, at: int) -> int | None:
    """How many bytes the value of a status variable takes; None where that is not known."""
    if code in _FIXED_STATUS:
        return _FIXED_STATUS[code]
    if at >= len(status):
        return None
    if code in (2, 5, 6):  # catalog with its NUL, time zone, catalog
        return 1 + status[at] + (1 if code == 2 else 0)
    if code == 11:  # invoker: user and host
        host = at + 1 + status[at]
        return host - at + 1 + status[host] if host < len(status) else None
    if code == 12:  # databases that the statement changes, each with a NUL
        if status[at] >= _DATABASES_MAX:
            return 1
        rest, end = bytes(status[at + 1 :]), 0
        for _ in range(status[at]):
            end = rest.find(b"\0", end) + 1
            if not end:
                return None
        return 1 + end
    if code == 130:  # MariaDB: flags of a two-phase ALTER, and of its end the number of its beginning
        return 9 if status[at] & (GTID_COMMIT_ALTER | GTID_ROLLBACK_ALTER) else 1
    if code == 131:  # MariaDB 11.5, before the charsets: pairs of a charset and its default collation
        return 1 + 4 * status[at]
    return None


def parse_rows_query(event: Bytes, fde: FormatDescription) -> str:
    """ROWS_QUERY and ANNOTATE_ROWS: the statement that made the rows after it. MySQL puts a byte of length before it,
    which says nothing for longer ones."""
    first = 1 if event[4] == EventType.ROWS_QUERY else 0
    return bytes(event_body(event, fde, least=first)[first:]).decode("utf-8", "replace")


def parse_xid(event: Bytes, fde: FormatDescription) -> int:
    """XID: the number of the commit."""
    return int.from_bytes(event_body(event, fde, least=8)[0:8], "little")


def parse_rotate(event: Bytes, fde: FormatDescription) -> Rotate:
    """ROTATE: the file and offset where the binlog continues.

    The artificial one at the start of a stream has no checksum on some servers: pass an `fde` that says so.
    """
    body = event_body(event, fde, least=8)
    try:
        name = bytes(body[8:]).decode("utf-8")
    except UnicodeDecodeError:
        raise BadEvent("its file name is not UTF-8", event_type=event[4]) from None
    return Rotate(int.from_bytes(body[0:8], "little"), name)


def parse_xa_prepare(event: Bytes, fde: FormatDescription) -> XaPrepare:
    """XA_PREPARE of MySQL: whether the rows before it count is decided later, by XA COMMIT or XA ROLLBACK."""
    body = event_body(event, fde, least=13)
    one_phase, format_id, gtrid, bqual = struct.unpack_from("<BIII", body, 0)
    if len(body) < 13 + gtrid + bqual:
        raise BadEvent("cut in the XA id", event_type=event[4])
    xid = Xid(format_id, bytes(body[13 : 13 + gtrid]), bytes(body[13 + gtrid : 13 + gtrid + bqual]))
    return XaPrepare(bool(one_phase), xid)
