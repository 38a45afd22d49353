"""Attachments on disk: records, their files and the locks."""
