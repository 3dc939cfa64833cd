"""Where a server runs as a service of somebody else: there SET GLOBAL is not allowed, and settings are made elsewhere."""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from penstock.sources.mysql.connection import rows

_SIGNS = (  # of a server's own words, and how a setting is made there
    ("rdsdbbin", "in the DB parameter group of the instance or cluster (Amazon RDS, Aurora), set {name} = {value}"),
    ("google", "as a database flag of the instance (Google Cloud SQL), set {name} = {value}"),
    ("azure", "as a server parameter (Azure Database), set {name} = {value}"),
)


def hosted_form(connection: Connection[Any]) -> str:
    """How a setting is made, with places for its name and value; empty where SET GLOBAL does it."""
    words = " ".join(
        str(value) for value in rows(connection, "SELECT @@version, @@version_comment, @@basedir")[0]
    ).lower()
    return next((form for sign, form in _SIGNS if sign in words), "")
