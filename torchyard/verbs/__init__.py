"""One short function per verb: gather, decide, act."""
