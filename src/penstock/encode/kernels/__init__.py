"""The inner loops of the encoders, compiled."""
