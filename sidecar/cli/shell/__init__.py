"""The shared parts of all commands: options, the forms of a result, errors as objects, and progress."""
