"""Reads run logs and displays them, for scripts/plot and scripts/export_run.py."""
