"""Objects: bytes under a name, put whole, read by ranges. A directory of this machine, or S3, GCS or Azure by URL.

`open_objects(url)` gives the store of a URL: `file:///directory` through `files.py`, so that a test can cut the power;
everything else through obstore, which comes with the extra `objects` and is imported with the first use.
"""

from penstock.objects.directory import DirectoryObjects
from penstock.objects.store import SCHEMES, ObjectStore
from penstock.objects.url import checked_url, open_objects

__all__ = ["SCHEMES", "DirectoryObjects", "ObjectStore", "checked_url", "open_objects"]
