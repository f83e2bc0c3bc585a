"""From the text of a view to a plan of operators. Nothing here runs or imports Spark."""
