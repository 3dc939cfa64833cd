"""What developing Penstock needs beside Penstock itself."""
