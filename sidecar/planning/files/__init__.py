"""The files that a plan keeps, and why: the file set, its sources, and the stages that narrow it."""
