"""Operations on a PostgreSQL database, written once against the Session protocol."""
