-- surely(), possibly(): whether a condition holds for the record behind a published cell.
--
-- Both are three-valued: over all values that the cell may stand for, surely() is the AND of the
-- condition's truth and possibly() the OR, as SQL has them. So surely() can be true, false for some
-- value, or neither; NOT surely(...) is what is possibly not so, and NOT possibly(...) what is surely
-- not so, NULLs included.
--
-- Their bodies are expressions, which the planner puts in place of the call; a SET clause would keep
-- it from that. They are parsed here, once, so no search path of a caller's changes what they mean.

-- Ranges. One without bounds may stand for any value, NULL among them.

-- Ranges. One without bounds may stand for any value, NULL among them.

CREATE OR REPLACE FUNCTION kanon.surely(cell int4range, value integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) - 1 = value;
COMMENT ON FUNCTION kanon.surely(int4range, integer) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell int4range, value integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(int4range, integer) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell int4range, among int4range) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(int4range, int4range) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell int4range, among int4range) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(int4range, int4range) IS
    'whether a record with this cell may have a value in this range';

CREATE OR REPLACE FUNCTION kanon.surely(cell int8range, value bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) - 1 = value;
COMMENT ON FUNCTION kanon.surely(int8range, bigint) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell int8range, value bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(int8range, bigint) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell int8range, among int8range) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(int8range, int8range) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell int8range, among int8range) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(int8range, int8range) IS
    'whether a record with this cell may have a value in this range';

CREATE OR REPLACE FUNCTION kanon.surely(cell numrange, value numeric) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) = value;
COMMENT ON FUNCTION kanon.surely(numrange, numeric) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell numrange, value numeric) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(numrange, numeric) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell numrange, among numrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(numrange, numrange) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell numrange, among numrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(numrange, numrange) IS
    'whether a record with this cell may have a value in this range';

CREATE OR REPLACE FUNCTION kanon.surely(cell daterange, value date) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) - 1 = value;
COMMENT ON FUNCTION kanon.surely(daterange, date) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell daterange, value date) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(daterange, date) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell daterange, among daterange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(daterange, daterange) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell daterange, among daterange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(daterange, daterange) IS
    'whether a record with this cell may have a value in this range';

CREATE OR REPLACE FUNCTION kanon.surely(cell tsrange, value timestamp without time zone) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) = value;
COMMENT ON FUNCTION kanon.surely(tsrange, timestamp without time zone) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell tsrange, value timestamp without time zone) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(tsrange, timestamp without time zone) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell tsrange, among tsrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(tsrange, tsrange) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell tsrange, among tsrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(tsrange, tsrange) IS
    'whether a record with this cell may have a value in this range';

CREATE OR REPLACE FUNCTION kanon.surely(cell tstzrange, value timestamp with time zone) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT lower_inf(cell) AND NOT upper_inf(cell) AND lower(cell) = value AND upper(cell) = value;
COMMENT ON FUNCTION kanon.surely(tstzrange, timestamp with time zone) IS
    'whether a record with this cell certainly has this value';

CREATE OR REPLACE FUNCTION kanon.possibly(cell tstzrange, value timestamp with time zone) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value <@ cell;
COMMENT ON FUNCTION kanon.possibly(tstzrange, timestamp with time zone) IS
    'whether a record with this cell may have this value';

CREATE OR REPLACE FUNCTION kanon.surely(cell tstzrange, among tstzrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN NOT (lower_inf(cell) AND upper_inf(cell)) AND cell <@ among;
COMMENT ON FUNCTION kanon.surely(tstzrange, tstzrange) IS
    'whether a record with this cell certainly has a value in this range';

CREATE OR REPLACE FUNCTION kanon.possibly(cell tstzrange, among tstzrange) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cell && among;
COMMENT ON FUNCTION kanon.possibly(tstzrange, tstzrange) IS
    'whether a record with this cell may have a value in this range';

-- Sets of texts, in which NULL may be an element. Values are listed one by one, since the
-- literal of an array would be taken for a text.

CREATE OR REPLACE FUNCTION kanon.surely(cell text[], VARIADIC among text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN array_remove(cell, NULL) <@ among THEN
        CASE WHEN array_position(cell, NULL) IS NULL THEN true END
    WHEN cell IS NOT NULL AND among IS NOT NULL AND array_position(among, NULL) IS NULL THEN false
END;
COMMENT ON FUNCTION kanon.surely(text[], text[]) IS
    'whether a record with this cell certainly has one of these values';

CREATE OR REPLACE FUNCTION kanon.possibly(cell text[], VARIADIC among text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN cell && among THEN true
    WHEN cell IS NOT NULL AND among IS NOT NULL
        AND array_position(cell, NULL) IS NULL AND array_position(among, NULL) IS NULL THEN false
END;
COMMENT ON FUNCTION kanon.possibly(text[], text[]) IS
    'whether a record with this cell may have one of these values';

-- Cells that may be suppressed, where nothing is known. The condition is on a single column, whose
-- place is its number among the quasi-identifiers.

CREATE OR REPLACE FUNCTION kanon.surely(condition boolean, pattern text, place integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN substr(pattern, place, 1) = '*' THEN false ELSE condition END;
COMMENT ON FUNCTION kanon.surely(boolean, text, integer) IS
    'whether a condition on a cell that may be suppressed certainly holds';

CREATE OR REPLACE FUNCTION kanon.possibly(condition boolean, pattern text, place integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN substr(pattern, place, 1) = '*' THEN true ELSE condition END;
COMMENT ON FUNCTION kanon.possibly(boolean, text, integer) IS
    'whether a condition on a cell that may be suppressed may hold';

GRANT EXECUTE ON FUNCTION
    kanon.possibly(boolean, text, integer), kanon.possibly(daterange, date),
    kanon.possibly(daterange, daterange), kanon.possibly(int4range, int4range),
    kanon.possibly(int4range, integer), kanon.possibly(int8range, bigint),
    kanon.possibly(int8range, int8range), kanon.possibly(numrange, numeric),
    kanon.possibly(numrange, numrange), kanon.possibly(text[], text[]),
    kanon.possibly(tsrange, timestamp without time zone), kanon.possibly(tsrange, tsrange),
    kanon.possibly(tstzrange, timestamp with time zone), kanon.possibly(tstzrange, tstzrange),
    kanon.surely(boolean, text, integer), kanon.surely(daterange, date),
    kanon.surely(daterange, daterange), kanon.surely(int4range, int4range),
    kanon.surely(int4range, integer), kanon.surely(int8range, bigint),
    kanon.surely(int8range, int8range), kanon.surely(numrange, numeric),
    kanon.surely(numrange, numrange), kanon.surely(text[], text[]),
    kanon.surely(tsrange, timestamp without time zone), kanon.surely(tsrange, tsrange),
    kanon.surely(tstzrange, timestamp with time zone), kanon.surely(tstzrange, tstzrange)
TO kanon_publisher, kanon_analyst, kanon_user;
