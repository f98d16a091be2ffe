"""How operations reach PostgreSQL: from inside through PL/Python, from outside through psycopg."""
