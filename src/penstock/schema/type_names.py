"""Families of MySQL's column types, by the names that `Column.base_type` gives: synonyms are resolved already."""

from __future__ import annotations

INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
TEXT_TYPES = frozenset({"tinytext", "text", "mediumtext", "longtext"})
CHARACTER_TYPES = frozenset({"char", "varchar"}) | TEXT_TYPES
BLOB_TYPES = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
BINARY_TYPES = frozenset({"binary", "varbinary"}) | BLOB_TYPES
SPATIAL_TYPES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    }
)
