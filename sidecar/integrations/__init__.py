"""Tasks for schedulers: thin layers over :func:`sidecar.care` and :func:`sidecar.status`.

``sidecar.integrations.dagster``: an asset and a check. ``sidecar.integrations.airflow``: operators.
``sidecar.integrations.dbt``: the tables of a dbt run.
"""
