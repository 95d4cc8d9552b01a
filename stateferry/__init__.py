"""Reads, migrates, rescales and writes Apache Flink savepoints. It knows neither Spark nor Airflow."""
