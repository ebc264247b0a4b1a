"""The run that the learner makes: its operations, the buttons that add to them, and the form of its settings."""
