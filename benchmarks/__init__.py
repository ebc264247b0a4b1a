"""Scripts that measure and print tables. They are no tests."""
