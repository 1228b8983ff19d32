"""Compiled code on one device, a room for each kind of operation; nothing here knows of ranks."""
