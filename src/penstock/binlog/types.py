"""The numbers of the binlog format: event types, column types, flavours."""

from __future__ import annotations

from enum import IntEnum

HEADER_BYTES = 19
EVENT_BYTES_MAX = 1 << 30  # a server sends no larger one to a replica: `slave_max_allowed_packet` ends there
CHECKSUM_BYTES = 4
MAGIC = b"\xfebin"
MAGIC_ENCRYPTED = b"\xfdbin"

FLAG_IN_USE = 0x0001
FLAG_ARTIFICIAL = 0x0020

# Bytes of a group of up to nine digits in a packed decimal.
DECIMAL_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)

# What happened to a row: the letters of its kind.
OP_INSERT, OP_UPDATE, OP_DELETE = ord("I"), ord("U"), ord("D")


class Flavour(IntEnum):
    """Which server wrote the binlog. The entry format stores these numbers."""

    MYSQL = 0
    MARIADB = 1


class EventType(IntEnum):
    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS_V2 = 30
    UPDATE_ROWS_V2 = 31
    DELETE_ROWS_V2 = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


class ColumnType(IntEnum):
    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


ROWS_TYPES = frozenset(
    {
        EventType.WRITE_ROWS_V1,
        EventType.UPDATE_ROWS_V1,
        EventType.DELETE_ROWS_V1,
        EventType.WRITE_ROWS_V2,
        EventType.UPDATE_ROWS_V2,
        EventType.DELETE_ROWS_V2,
        EventType.PARTIAL_UPDATE_ROWS,
    }
)
"""Row events that the decoder reads."""

COMPRESSED_TYPES = frozenset(
    {EventType.TRANSACTION_PAYLOAD, *range(EventType.QUERY_COMPRESSED, EventType.DELETE_ROWS_COMPRESSED + 1)}
)
"""Events that stand for others, which `expand.py` makes of them."""

REFUSED_TYPES: dict[int, tuple[str, str]] = {
    EventType.PRE_GA_WRITE_ROWS: ("row events of MySQL 5.1 before its release are not supported", ""),
    EventType.PRE_GA_UPDATE_ROWS: ("row events of MySQL 5.1 before its release are not supported", ""),
    EventType.PRE_GA_DELETE_ROWS: ("row events of MySQL 5.1 before its release are not supported", ""),
    EventType.START_ENCRYPTION: ("encrypted binlogs are not supported", "set encrypt_binlog=OFF on the server"),
}
"""Events that carry changes and that this version refuses: why, and the setting of the server that avoids them."""
