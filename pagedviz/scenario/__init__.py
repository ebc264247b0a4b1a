"""What a user can do, as data: settings and operations, read from JSON and explained where they are wrong."""
