"""What an event is to the transaction that it stands in: pure functions over the bytes of rare events.

The kernel (kernel.py) knows the common events by itself. A statement is known by its first words; XA statements and
savepoints carry a name. Which tables a logged INSERT, UPDATE or DELETE changes (changed_tables.py) is read only to tell
those that nobody follows.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import Enum

from penstock.binlog.bodies import Xid
from penstock.binlog.errors import BadEvent
from penstock.binlog.types import HEADER_BYTES, EventType
from penstock.capture.transactions.changed_tables import Table, changed_tables

_COMMENT = re.compile(r"(?:\s+|/\*(?!M?!).*?\*/|--(?=\s)[^\n]*|#[^\n]*)+", re.DOTALL)
_EXECUTABLE = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_QUERY_POST_HEADER = HEADER_BYTES + 13  # of a QUERY event ends here
_LOAD_POST_HEADER = (
    _QUERY_POST_HEADER + 13
)  # of an EXECUTE_LOAD_QUERY event: file id, where its name stands, duplicates
_WORDS = re.compile(r"[A-Za-z]+")
_DDL = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
# What is logged as a statement because it changes rows: SELECT, DO and CALL by a function or procedure that does.
_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "DO", "CALL"})
_XID = re.compile(
    r"""(?:X'(?P<g>[0-9A-Fa-f]*)'|0x(?P<g0>[0-9A-Fa-f]*)|'(?P<gt>[^']*)')
    (?:\s*,\s*(?:X'(?P<b>[0-9A-Fa-f]*)'|0x(?P<b0>[0-9A-Fa-f]*)|'(?P<bt>[^']*)'))?(?:\s*,\s*(?P<f>\d+))?""",
    re.VERBOSE | re.IGNORECASE,
)
_SAVEPOINT_NAME = re.compile(r"`((?:[^`]|``)*)`|([^\s;`]+)")
_FUNCTION_CALL = re.compile(r"(?:SELECT|DO)\s+`(?:[^`]|``)+`\.`(?:[^`]|``)+`\s*\(", re.IGNORECASE)


class Verb(Enum):
    """What a QUERY event does to transactions."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    DDL = "ddl"
    DML = "dml"  # rows changed by a statement instead of row events
    OTHER = "other"


XA_VERBS = frozenset({Verb.XA_START, Verb.XA_END, Verb.XA_COMMIT, Verb.XA_ROLLBACK})


@dataclass(frozen=True, slots=True)
class Statement:
    """A classified statement. `name`: of a savepoint, or the text of an XA id (`xid_text`)."""

    verb: Verb
    name: str = ""


def classify(sql: str) -> Statement:
    """What a statement is, by its first words."""
    text = _bare(sql)
    words = [word.upper() for word in _WORDS.findall(text[:40])[:2]]
    first = words[0] if words else ""
    second = words[1] if len(words) > 1 else ""
    if first == "XA":
        verb = {
            "START": Verb.XA_START,
            "BEGIN": Verb.XA_START,
            "END": Verb.XA_END,
            "COMMIT": Verb.XA_COMMIT,
            "ROLLBACK": Verb.XA_ROLLBACK,
        }.get(second, Verb.OTHER)
        match = _XID.search(text)
        return Statement(verb, xid_text(_xid(match)) if match else "")
    if first == "ROLLBACK":
        return _rollback(text)
    if first == "SAVEPOINT":
        return Statement(Verb.SAVEPOINT, _savepoint(text[len("SAVEPOINT") :]))
    if first in ("BEGIN", "COMMIT"):
        return Statement(Verb.BEGIN if first == "BEGIN" else Verb.COMMIT)
    if first in _DDL:
        return Statement(Verb.DDL)
    if first in _DML or first == "WITH" or _FUNCTION_CALL.match(text):
        return Statement(Verb.DML)
    return Statement(Verb.OTHER)


def xid_text(xid: Xid) -> str:
    """The name of an XA group: `format:gtrid:bqual`, the two ids in hex."""
    return f"{xid.format_id}:{xid.gtrid.hex()}:{xid.bqual.hex()}"


def tables_changed(sql: str, schema: str, sql_mode: int = 0) -> list[Table]:
    """The tables that a logged statement of kind DML changes; none if it cannot be told. `schema` is the session's."""
    return [Table(one.schema or schema, one.table) for one in changed_tables(_bare(sql), sql_mode)]


def load_as_query(event: memoryview, trailer_bytes: int) -> bytes:
    """The statement of an EXECUTE_LOAD_QUERY event as a QUERY event: what it says about the file is left out."""
    raw = bytes(event)
    if len(raw) < _LOAD_POST_HEADER + trailer_bytes:
        raise BadEvent(f"{len(raw)} bytes are too short", event_type=raw[4])
    body = raw[HEADER_BYTES:_QUERY_POST_HEADER] + raw[_LOAD_POST_HEADER : len(raw) - trailer_bytes]
    size = HEADER_BYTES + len(body) + trailer_bytes
    made = raw[:4] + bytes([EventType.QUERY]) + raw[5:9] + size.to_bytes(4, "little") + raw[13:HEADER_BYTES] + body
    return made + zlib.crc32(made).to_bytes(4, "little") if trailer_bytes else made


def _bare(sql: str) -> str:
    """Without comments at its start; what stands in an executable comment there counts."""
    text = sql
    while True:
        space = _COMMENT.match(text)
        text = text[space.end() :] if space else text
        executable = _EXECUTABLE.match(text)
        if executable is None:
            return text
        text = f"{executable[1]} {text[executable.end() :]}"


def _rollback(text: str) -> Statement:
    rest = text[len("ROLLBACK") :].strip().rstrip(";")
    rest = re.sub(r"^WORK\b\s*", "", rest, flags=re.IGNORECASE)
    to = re.match(r"TO\s+(?:SAVEPOINT\s+)?", rest, re.IGNORECASE)
    return Statement(Verb.ROLLBACK_TO, _savepoint(rest[to.end() :])) if to else Statement(Verb.ROLLBACK)


def _savepoint(text: str) -> str:
    """The name, as servers compare it: in lower case."""
    match = _SAVEPOINT_NAME.match(text.strip())
    if match is None:
        return ""
    return (match[1].replace("``", "`") if match[1] is not None else match[2]).lower()


def _xid(match: re.Match[str]) -> Xid:
    def part(hexadecimal: str, zero_x: str, text: str) -> bytes:
        digits = match[hexadecimal] if match[hexadecimal] is not None else match[zero_x]
        return bytes.fromhex(digits) if digits is not None else (match[text] or "").encode()

    return Xid(int(match["f"] or 1), part("g", "g0", "gt"), part("b", "b0", "bt"))
