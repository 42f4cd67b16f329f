"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast the machine makes examples, or runs one, says nothing about the code: a timed unit test is none of ours.
settings.register_profile("lineup", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lineup")
