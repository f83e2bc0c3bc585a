"""The last resort: tables are asked again and again for rows above a mark, by a column that grows."""
