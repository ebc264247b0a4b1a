"""What is played: operations to steps with their source lines and verdicts, to and from JSON."""
