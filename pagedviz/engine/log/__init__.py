"""What happened: events and their sentences, errors, states, and how an event changes the state."""
