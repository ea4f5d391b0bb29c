"""Page indexes of Parquet files: read, written, built and checked.

Start with :class:`sidecar.parquet.page_indexes.page_index.ColumnIndex`.
"""
