"""What happened: sentences, errors, events, states, and how an event leads from one state to the next."""
