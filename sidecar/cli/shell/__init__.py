"""What all commands share: their options, the forms of a result, errors as objects, and progress."""
