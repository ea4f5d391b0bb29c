"""What the runs over foreign files and tables share."""
