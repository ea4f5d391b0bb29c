"""What a Parquet file carries: Thrift, footer, Bloom filters, pages, dictionaries."""
