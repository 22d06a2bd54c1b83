"""Reads run logs and shows them: behind scripts/plot and scripts/export_run.py."""
