"""Giving data files filters and page indexes, and taking them away: single files, tables, out of sidecars."""
