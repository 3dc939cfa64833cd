"""What the front doors share: the configuration, and the operations behind the commands."""
