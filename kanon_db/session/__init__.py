"""Runs statements in PostgreSQL: from inside through PL/Python, from outside through psycopg."""

from kanon_db.session.protocol import SETTINGS, Row, Session, Value, fetch_one, undone

__all__ = ["SETTINGS", "Row", "Session", "Value", "fetch_one", "undone"]
