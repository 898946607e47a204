"""The only code that touches processes, Docker, registries, the network and the host."""
