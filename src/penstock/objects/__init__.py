"""Objects: bytes under a name, put as a whole and read by ranges; in a directory of this machine, or in S3, GCS or
Azure.

`open_objects(url)` (`url.py`) opens the store of a URL. `file:///directory` goes through `penstock.files`
(`directory.py`), so that a test can cut the power; everything else goes through obstore (`remote.py`), which comes with
the extra `objects` and is imported at first use. `store.py` is the protocol.
"""

from penstock.objects.directory import DirectoryObjects
from penstock.objects.store import SCHEMES, Found, ObjectChanged, ObjectStore
from penstock.objects.url import checked_url, open_objects

__all__ = ["SCHEMES", "DirectoryObjects", "Found", "ObjectChanged", "ObjectStore", "checked_url", "open_objects"]
