"""Read, migrate, re-scale and write Apache Flink savepoints, knowing neither Spark nor Airflow."""
