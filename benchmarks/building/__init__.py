"""What the benchmarks of builds are made of."""
