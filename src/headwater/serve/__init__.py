"""Third arrow: topics become stores, HTTP, live pages."""
