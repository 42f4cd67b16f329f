"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# How fast the machine makes examples, or runs one, says nothing about the code: a timed unit test is none of ours.
settings.register_profile("lineup", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lineup")

# A shell hands an ignored Ctrl-C down to what it starts in the background, and we would to the Runtimes under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
