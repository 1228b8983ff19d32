"""Logs, cost meter, progress, tables and timing of a run, and facts about its machine."""
