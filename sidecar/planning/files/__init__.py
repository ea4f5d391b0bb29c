"""Which files are left, and why: the file set, its sources, and the stages that narrow it."""
