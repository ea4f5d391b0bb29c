"""The text output of ``inspect``, a module for each kind of file."""
