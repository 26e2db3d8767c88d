"""The compiled inner loops of the loss engine."""
