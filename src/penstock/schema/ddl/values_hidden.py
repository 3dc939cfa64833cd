"""A statement that changes rows, as it may be shown: its values are those of rows, which a mask may hide at every sink."""

from __future__ import annotations

from penstock.schema.ddl.tokens import END, NUMBER, STRING, Unreadable, tokens_of

_TOKENS_MAX = 60
_SHOWN_OF_UNREADABLE = 1  # words
_WORDS_OF_BYTES = ("0X", "0B")  # 0x4a


def without_values(sql: str, sql_mode: int = 0) -> str:
    """The beginning of the statement with `?` for each text and number, and without comments."""
    try:
        tokens = tokens_of(sql, sql_mode, limit=_TOKENS_MAX + 1)
    except Unreadable:
        return " ".join([*sql.split()[:_SHOWN_OF_UNREADABLE], "…"])
    shown: list[str] = []
    last = tokens[0].start
    for token in tokens[:_TOKENS_MAX]:
        if token.kind == END:
            break
        is_value = token.kind in (STRING, NUMBER) or token.upper.startswith(_WORDS_OF_BYTES)
        shown.append(" " if token.start > last else "")
        shown.append("?" if is_value else sql[token.start : token.end])
        last = token.end
    return "".join(shown) + (" …" if len(tokens) > _TOKENS_MAX + 1 else "")
