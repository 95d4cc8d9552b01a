"""Apache Flink for Apache Airflow, over Flink's REST API: a connection type, a hook, operators, a sensor, triggers."""
