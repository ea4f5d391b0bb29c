"""Catalog access, listing, registration, planning and scanning of Iceberg tables."""
