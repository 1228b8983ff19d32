"""Compiled code for one device, with a package for each kind of operation; the code does not know of ranks."""
