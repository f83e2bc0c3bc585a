"""What others have captured: Debezium's or Maxwell's messages become table topics, and ours are told in Debezium's."""
