"""Apache Flink over its REST API for Apache Airflow: a connection type, a hook, operators, a sensor, triggers."""
