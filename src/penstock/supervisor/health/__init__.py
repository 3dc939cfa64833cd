"""How the source and the flow are doing: what is noticed by silence, by time and by growth."""
