"""Independent checkers: what the Runtime promises, judged from what agents, workers and Hosts saw, and from the audit.

Nothing here may import the Runtime's own packages: a checker that shared code with what it checks would share its
mistakes.
"""
