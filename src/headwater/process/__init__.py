"""Second arrow: topics become topics, on Spark. The only room that imports pyspark, and only where a query runs."""
