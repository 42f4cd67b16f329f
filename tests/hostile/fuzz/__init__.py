"""Coverage-guided fuzzing of decode → check → route on all three links: only typed errors leave, whatever comes in."""
