-- What a published cell tells of the record behind it.
--
-- surely() and possibly() say whether a condition holds for it. Both are three-valued: over all values
-- that the cell may stand for, surely() is the AND of the condition's truth and possibly() the OR, as
-- SQL has them. So surely() can be true, false for some value, or neither; NOT surely(...) is what is
-- possibly not so, and NOT possibly(...) what is surely not so, NULLs included.
--
-- Their bodies are expressions, which the planner puts in place of the call; a SET clause would keep
-- it from that. They are parsed here, once, so no search path of a caller's changes what they mean.

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

-- What a cell tells of a record's value: each value that it may stand for, with its share of the
-- records that have this cell. A cell of which nothing is known has no row; a range that lacks one
-- end counts as the other one. kanon.rewrite_count calls them, for the distinct cells of a column.
--
-- Of a range, `cuts` are the constants that values are compared with: it is enough to have one value
-- between each two of them. `own`, `points`, `shares` and `trust` are the publication's estimates
-- (<name>_est): the share of either end, the parts that the range covers, each with a value and a share,
-- and how far what lies between the ends follows these; the rest lies evenly. Where parts are listed,
-- `most` of them, what lies evenly is at their values, too.

CREATE OR REPLACE FUNCTION kanon.values_of(cell text[], shares float8[] DEFAULT NULL)
RETURNS TABLE (value text, share float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT m.value, coalesce(m.share, 1 / cardinality(cell)::float8)
    FROM unnest(cell, shares) WITH ORDINALITY AS m (value, share, place)
    WHERE m.place <= cardinality(cell);
END;
COMMENT ON FUNCTION kanon.values_of(text[], float8[]) IS
    'the values that a set stands for, each with its share of the records';

CREATE OR REPLACE FUNCTION kanon.weigh_shares(own float8, shares float8[], trust float8, most integer)
RETURNS TABLE (base float8, n integer, listed integer, even float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT sum(s.share), cardinality(shares), least(cardinality(shares), most),
           CASE WHEN own IS NULL OR coalesce(sum(s.share), 0) = 0 THEN 1
                WHEN most IS NULL THEN (1 - 2 * own) * (1 - trust) ELSE 0 END
    FROM unnest(shares) AS s (share);
END;
COMMENT ON FUNCTION kanon.weigh_shares(float8, float8[], float8, integer) IS
    'what the parts of a range have in all, how many there are and are listed, and what lies evenly';

CREATE OR REPLACE FUNCTION kanon.numbers_of(
    cell anyrange, cuts anyarray,
    own float8, points anyarray, shares float8[], trust float8, is_each boolean, most integer DEFAULT NULL
) RETURNS TABLE (value anyelement, share float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    WITH known AS (SELECT * FROM kanon.weigh_shares(own, shares, trust, most))
    SELECT coalesce(lower(cell), upper(cell) - 1), 1::float8
    WHERE lower_inf(cell) <> upper_inf(cell)
    UNION ALL
    SELECT u.value, u.share FROM known AS k, LATERAL (
        SELECT lower(cell), own UNION ALL SELECT upper(cell) - 1, own
        UNION ALL
        SELECT greatest(lower(cell), least(points[(p.first + p.last) / 2], upper(cell) - 1)),
               (1 - 2 * own) * (
                   trust * (SELECT sum(s.share) FROM unnest(shares[p.first:p.last]) AS s (share)) / k.base
                   + CASE WHEN most IS NULL THEN 0
                          WHEN is_each THEN (1 - trust) * (p.last - p.first + 1) / k.n
                          ELSE (1 - trust) * coalesce(
                              ((points[p.last] - points[p.first])::float8
                               + (points[least(p.last + 1, k.n)] - points[greatest(p.first - 1, 1)]))
                              / nullif(2 * (points[k.n] - points[1]), 0), 1) END)
        FROM (SELECT i * k.n / k.listed + 1, (i + 1) * k.n / k.listed
              FROM generate_series(0, k.listed - 1) AS i) AS p (first, last)
    ) AS u (value, share)
    WHERE upper(cell) > lower(cell) AND own IS NOT NULL AND k.base <> 0
    UNION ALL
    SELECT p.value, k.even * (lead(p.value, 1, upper(cell)) OVER (ORDER BY p.value) - p.value)
                    / (upper(cell) - lower(cell))::float8
    FROM known AS k, LATERAL (
        SELECT lower(cell)
        UNION SELECT c.cut + after FROM unnest(cuts) AS c (cut), generate_series(0, 1) AS after
              WHERE lower(cell) <= c.cut + after AND c.cut + after < upper(cell)
        UNION SELECT lower(cell) + i::integer
              FROM generate_series(0, upper(cell) - lower(cell) - 1) AS i WHERE cuts IS NULL
    ) AS p (value)
    WHERE upper(cell) > lower(cell) AND k.even > 0
$function$;
COMMENT ON FUNCTION kanon.numbers_of(anyrange, anyarray, float8, anyarray, float8[], float8, boolean, integer) IS
    'the values that a range of whole numbers, or days, stands for, each with its share of the records';

CREATE OR REPLACE FUNCTION kanon.numbers_of(cell anyrange, cuts anyarray)
RETURNS TABLE (value anyelement, share float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT u.value, u.share FROM kanon.numbers_of(cell, cuts, NULL, cuts, NULL, NULL, NULL) AS u
$function$;
COMMENT ON FUNCTION kanon.numbers_of(anyrange, anyarray) IS
    'the same, where all values are as likely as the others';

CREATE OR REPLACE FUNCTION kanon.width(low numeric, high numeric) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN high - low;
COMMENT ON FUNCTION kanon.width(numeric, numeric) IS 'how far two numbers are apart';

CREATE OR REPLACE FUNCTION kanon.width(low timestamp, high timestamp) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN EXTRACT(epoch FROM high - low);
COMMENT ON FUNCTION kanon.width(timestamp, timestamp) IS 'how many seconds two times are apart';

CREATE OR REPLACE FUNCTION kanon.width(low timestamptz, high timestamptz) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN EXTRACT(epoch FROM high - low);
COMMENT ON FUNCTION kanon.width(timestamptz, timestamptz) IS 'how many seconds two times are apart';

CREATE OR REPLACE FUNCTION kanon.parts_of(
    cell anyrange, cuts anyarray,
    own float8, points anyarray, shares float8[], trust float8, most integer DEFAULT NULL
) RETURNS TABLE (value anyelement, share float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    WITH known AS (SELECT * FROM kanon.weigh_shares(own, shares, trust, most))
    SELECT coalesce(lower(cell), upper(cell)), 1::float8
    WHERE lower_inf(cell) <> upper_inf(cell) OR lower(cell) = upper(cell)
    UNION ALL
    SELECT u.value, u.share FROM known AS k, LATERAL (
        SELECT lower(cell), own UNION ALL SELECT upper(cell), own
        UNION ALL
        SELECT greatest(lower(cell), least(points[(p.first + p.last) / 2], upper(cell))),
               (1 - 2 * own) * (
                   trust * (SELECT sum(s.share) FROM unnest(shares[p.first:p.last]) AS s (share)) / k.base
                   + CASE WHEN most IS NULL THEN 0
                          ELSE (1 - trust) * coalesce(
                              (kanon.width(points[p.first], points[p.last])
                               + kanon.width(points[greatest(p.first - 1, 1)],
                                             points[least(p.last + 1, k.n)]))
                              / nullif(2 * kanon.width(points[1], points[k.n]), 0), 1) END)
        FROM (SELECT i * k.n / k.listed + 1, (i + 1) * k.n / k.listed
              FROM generate_series(0, k.listed - 1) AS i) AS p (first, last)
    ) AS u (value, share)
    WHERE lower(cell) < upper(cell) AND own IS NOT NULL AND k.base <> 0
    UNION ALL
    SELECT p.low + (p.high - p.low) / 2,
           k.even * kanon.width(p.low, p.high) / kanon.width(lower(cell), upper(cell))
    FROM known AS k, LATERAL (
        SELECT c.low, lead(c.low) OVER (ORDER BY c.low) FROM (
            SELECT lower(cell) UNION SELECT upper(cell)
            UNION SELECT c.cut FROM unnest(cuts) AS c (cut) WHERE lower(cell) < c.cut AND c.cut < upper(cell)
        ) AS c (low)
    ) AS p (low, high)
    WHERE p.high IS NOT NULL AND cuts IS NOT NULL AND lower(cell) < upper(cell) AND k.even > 0
    UNION ALL  -- a hundred points at equal distances
    SELECT lower(cell) + (upper(cell) - lower(cell)) * ((i + 0.5) / 100), k.even / 100
    FROM known AS k, generate_series(0, 99) AS i
    WHERE cuts IS NULL AND lower(cell) < upper(cell) AND k.even > 0
$function$;
COMMENT ON FUNCTION kanon.parts_of(anyrange, anyarray, float8, anyarray, float8[], float8, integer) IS
    'values of the parts of a continuous range, each with its share of the records';

CREATE OR REPLACE FUNCTION kanon.parts_of(cell anyrange, cuts anyarray)
RETURNS TABLE (value anyelement, share float8)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT u.value, u.share FROM kanon.parts_of(cell, cuts, NULL, cuts, NULL, NULL) AS u
$function$;
COMMENT ON FUNCTION kanon.parts_of(anyrange, anyarray) IS
    'the same, where all values are as likely as the others';

CREATE OR REPLACE FUNCTION kanon.values_of_label(label text, described jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN label IS NULL THEN ARRAY[NULL::text]
        ELSE ARRAY(
            SELECT v.value FROM jsonb_array_elements_text(described -> 'values') WITH ORDINALITY AS v (value, place)
            WHERE v.value = label OR label = '*' OR EXISTS (
                SELECT FROM jsonb_array_elements(described -> 'labels') AS l (span)
                WHERE l.span ->> 0 = label
                  AND v.place BETWEEN (l.span ->> 1)::integer + 1 AND (l.span ->> 2)::integer + 1)
            ORDER BY v.place
        ) || CASE label WHEN '*' THEN ARRAY[NULL::text] END END;
END;
COMMENT ON FUNCTION kanon.values_of_label(text, jsonb) IS
    'the values that a label stands for, as the publication describes its labels';

GRANT EXECUTE ON FUNCTION
    kanon.values_of_label(text, jsonb), kanon.numbers_of(anyrange, anyarray),
    kanon.numbers_of(anyrange, anyarray, float8, anyarray, float8[], float8, boolean, integer),
    kanon.parts_of(anyrange, anyarray),
    kanon.parts_of(anyrange, anyarray, float8, anyarray, float8[], float8, integer),
    kanon.values_of(text[], float8[]), kanon.weigh_shares(float8, float8[], float8, integer),
    kanon.width(numeric, numeric), kanon.width(timestamp, timestamp), kanon.width(timestamptz, timestamptz),
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
