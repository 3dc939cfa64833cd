"""Multipart uploads that nobody will finish: obstore can neither list nor end them, so this asks S3 itself.

A dead process leaves the parts that it sent; they are not visible, and are paid for until the upload is ended. Azure discards
such blocks after a week and at the next write of the name; for Google Cloud Storage, and for S3 with credentials that
are not in the environment (an instance's role), a lifecycle rule of the bucket has to do it (docs/sink-settings.md).
"""

from __future__ import annotations

import hashlib
import hmac
import html
import http.client
import logging
import os
import re
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from penstock.errors import Unavailable

_LOG = logging.getLogger(__name__)
_SECONDS_MAX = 30.0
_EMPTY = hashlib.sha256(b"").hexdigest()
_UPLOAD = re.compile(r"<Upload>.*?<Key>(.*?)</Key>.*?<UploadId>(.*?)</UploadId>.*?</Upload>", re.DOTALL)


def end_uploads(url: str, name: str) -> int:
    """Ends the unfinished uploads of exactly this object, or of all below the URL where it is empty; returns their number, 0
    where they cannot be listed."""
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return 0
    if not (os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY")):
        if not name:  # once at a start, not for each file
            _LOG.warning(
                "unfinished uploads cannot be looked for: the credentials are not in the environment",
                extra={"url": url},
            )
        return 0
    bucket, prefix = parts.netloc, parts.path.strip("/")
    below = f"{prefix}/" if prefix else ""
    ended: set[tuple[str, str]] = set()
    while True:  # an answer has a thousand of them at most
        answer = _request("GET", f"/{bucket}", {"prefix": below + name, "uploads": ""})
        listed = {(html.unescape(key), html.unescape(upload)) for key, upload in _UPLOAD.findall(answer)}
        found = {each for each in listed - ended if (each[0] == below + name if name else each[0].startswith(below))}
        if not found:
            return len(ended)
        for key, upload in sorted(found):
            _request("DELETE", f"/{bucket}/{key}", {"uploadId": upload})
        ended |= found


def _request(method: str, path: str, query: dict[str, str]) -> str:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com")
    encoded = quote(endpoint.path.rstrip("/") + path, safe="/~")
    text = "&".join(f"{quote(key, safe='~')}={quote(value, safe='~')}" for key, value in sorted(query.items()))
    headers = _signed(method, endpoint.netloc, encoded, text, region)
    kind = http.client.HTTPConnection if endpoint.scheme == "http" else http.client.HTTPSConnection
    connection = kind(endpoint.netloc, timeout=_SECONDS_MAX)
    try:
        connection.request(method, f"{encoded}?{text}", headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{endpoint.netloc}: unfinished uploads cannot be looked for: {error}") from None
    finally:
        connection.close()
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(
            f"{endpoint.netloc}: unfinished uploads cannot be looked for: {answer.status} {answer.reason}"
        )
    if answer.status >= 300 and answer.status != 404:  # not permitted, or not known there: a rule of the bucket has to
        _LOG.warning("unfinished uploads cannot be looked for", extra={"status": answer.status, "path": path})
        return ""
    return body


def _signed(method: str, host: str, path: str, query: str, region: str) -> dict[str, str]:
    """Headers with AWS Signature Version 4 of a request without a body."""
    now = datetime.now(UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    token = os.environ.get("AWS_SESSION_TOKEN")
    if token:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        [method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, _EMPTY]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    identity = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={identity}, SignedHeaders={names}, Signature={signature}"
    return headers
