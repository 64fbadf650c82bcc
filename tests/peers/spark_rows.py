"""Rows of queries of Spark SQL, by one core, in folders of Parquet files: ``spark_rows.py VIEWS.sql FOLDER QUERY…``."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

views, folder, *queries = sys.argv[1:]
options = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
builder = SparkSession.builder.master("local[1]")
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
lines = [line for line in Path(views).read_text().splitlines() if not line.startswith("--")]
for statement in filter(str.strip, "\n".join(lines).split(";\n")):
    spark.sql(statement.strip().removesuffix(";"))
for number, query in enumerate(queries):
    spark.sql(query).write.parquet(f"{folder}/{number}")
spark.stop()
