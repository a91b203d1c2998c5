"""Instep in Airflow: `operators.InstepRunOperator` and `sensors.InstepPartitionSensor`."""
