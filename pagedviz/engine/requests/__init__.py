"""Requests and the engine steps that serve them: queues, scheduler, beams, and what each step computed."""
