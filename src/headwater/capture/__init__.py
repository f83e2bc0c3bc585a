"""The first arrow: databases become topics, with nothing lost between snapshot and stream."""
