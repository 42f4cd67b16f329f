"""Drives real Runtimes from outside: processes, the raw agent link, the operator's link, and a verdict at the end.

Nothing of ours is used as a client: frames are plain JSON over ``websockets``, operator messages plain msgpack over
ZeroMQ, so that a mistake in our own clients cannot hide one of the Runtime's.
"""
