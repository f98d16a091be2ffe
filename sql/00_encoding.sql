-- Texts are UTF-8: in SQL_ASCII, where whoever wrote them says so.
DO $encoding$
BEGIN
    IF pg_catalog.current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
        RAISE EXCEPTION USING ERRCODE = 'KN004',
            MESSAGE = 'the database''s encoding does not fit',
            DETAIL = pg_catalog.format(
                'it is %s, while PL/Python hands over statements in UTF8, so that names outside'
                ' ASCII would turn into others', pg_catalog.current_setting('server_encoding')),
            HINT = 'CREATE DATABASE ... ENCODING ''UTF8'' TEMPLATE template0';
    END IF;
END
$encoding$;
