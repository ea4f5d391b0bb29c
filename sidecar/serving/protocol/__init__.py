"""The scan planning part of Iceberg's REST protocol: requests, answers, errors. It knows no web server."""
