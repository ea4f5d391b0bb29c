"""``scripts/release``: what is published, and the checks that it passes before."""
