"""Deciding on facts: plain facts in, findings out; no disk, network, clock or process."""
