"""The parts of the reference training: train.py beside this folder puts them together."""
