-- What errands are told: called by run_errand only, before it does or locks anything.
--
-- kanon.errand_fields() is the one place that says what each errand may be told, and
-- kanon.require_told() refuses everything else. docs/howto/operation.md has the same table.
CREATE OR REPLACE FUNCTION kanon.is_plain(name text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- The same characters as in kanon_db/catalog/names.py.
    RETURN name !~ '[\u0001-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff]';
END
$function$;
COMMENT ON FUNCTION kanon.is_plain IS
    'whether a name shows what it is: no control characters, and none that turn text around';

CREATE OR REPLACE FUNCTION kanon.errand_fields()
RETURNS TABLE (task text, field text, rule text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY SELECT t.task, f.field, t.rule FROM (VALUES
        ('create table', 'own staged', '{prefix}'),
        ('create table', 'ending', '{suffix}'),
        ('create table', 'columns', '{columns}'),
        ('create table', 'names', '{uncompressed}'),
        ('create view', 'own staged', '{prefix}'),
        ('create view', 'ending', '{tables,suffix}'),
        ('create view', 'names', '{number,columns,layout}'),
        ('analyze', 'own staged', '{prefix}'),
        ('analyze', 'ending', '{suffixes}'),
        ('analyze', 'names', '{columns,keys}'),
        ('drop staged', 'own staged', '{prefix}'),
        ('drop staged', 'ending', '{suffixes}'),
        ('publish', 'own staged', '{prefix,entities}'),
        ('publish', 'ending', '{suffixes,closed}'),
        ('publish', 'free name', '{name}'),
        ('publish', 'own release', '{refreshes}'),
        ('publish', 'readable source', '{source_id}'),
        ('publish', 'as registered', '{registered_at}'),
        ('publish', 'own label', '{label}'),
        ('publish', 'ticket', '{seen}'),
        ('publish', 'names', '{readers}'),
        ('publish', 'anything', '{kind,method,parameters,layout,records,guarantee,promise,metrics,'
            'source_metrics,columns,digest,measured,notes,upto,added,withdrawn,replace,keeps_grants}'),
        ('drop', 'own publication', '{name}'),
        ('close', 'own publication', '{name}'),
        ('keep attacks', 'own publication', '{name}'),
        ('keep attacks', 'anything', '{found}'),
        ('keep waits', 'own publication', '{name}'),
        ('keep waits', 'anything', '{waits}'),
        ('batches', 'own publication', '{name}'),
        ('grant', 'own publication', '{name}'),
        ('grant', 'ticket', '{seen}'),
        ('grant', 'names', '{readers}'),
        ('grant', 'anything', '{accept,measured,notes}'),
        ('unknown entities', 'own publication', '{name}'),
        ('unknown entities', 'own staged', '{prefix}'),
        ('earlier releases', 'readable source', '{source_id}'),
        ('earlier releases', 'own label', '{label}'),
        ('earlier releases', 'own release', '{publication_id}'),
        ('earlier releases', 'names', '{readers}'),
        ('seed', 'own answer', '{digest,dry_run}'),
        ('register', 'own description', '{relation}'),
        ('register', 'names',
            '{quasi_identifiers,sensitive,also_sensitive,identifiers,insensitive,entity,arrival}'),
        ('register', 'anything', '{attributes,keep}')
    ) AS t (task, rule, fields) CROSS JOIN unnest(t.fields::text[]) AS f (field);
END
$function$;
COMMENT ON FUNCTION kanon.errand_fields IS 'what each errand may be told, and the rule for it';

CREATE OR REPLACE FUNCTION kanon.errand_rules() RETURNS TABLE (rule text, says text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY VALUES
        ('own staged', 'how names begin of relations that the caller staged, and nobody else'),
        ('ending', 'the ends of these names, such as _qit'),
        ('columns', 'plain names, with types and collations that are a superuser''s'),
        ('names', 'plain names of columns, or of roles'),
        ('free name', 'a plain name that no publication or relation of another has'),
        ('own publication', 'the name of a publication that the caller published'),
        ('own release', 'the number of a publication that the caller published'),
        ('readable source', 'a source of which the caller may read all that it is made of'),
        ('own description',
            'a relation that the caller may read, with all that it is made of, and that the caller'
            ' owns or no other role has registered'),
        ('as registered', 'when the source was registered: not what the caller has not seen'),
        ('own label', 'a plain label under which nobody else has published'),
        ('ticket', 'tickets of releases of which the caller was told in this transaction, about the same people'),
        ('own answer', 'anything: what is answered is another thing for each caller'),
        ('anything', 'anything: it is kept with what is the caller''s, and nothing is found by it');
END
$function$;
COMMENT ON FUNCTION kanon.errand_rules IS 'the rules of kanon.errand_fields(), for people to read';

CREATE OR REPLACE FUNCTION kanon.require_told(caller oid, task text, given jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _told record;
    _text text;
    _may  boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM kanon.errand_fields() AS f WHERE f.task = require_told.task) THEN
        RAISE EXCEPTION USING MESSAGE = 'there is no such errand', ERRCODE = '22023';
    END IF;
    FOR _told IN
        SELECT g.key AS field, g.value, f.rule FROM jsonb_each(given) AS g
        LEFT JOIN kanon.errand_fields() AS f ON f.task = require_told.task AND f.field = g.key
        WHERE g.value <> 'null'
    LOOP
        _text := _told.value #>> '{}';
        IF _told.rule IN ('names', 'columns', 'free name', 'own label') AND EXISTS (
            SELECT FROM jsonb_path_query(_told.value, 'strict $.** ? (@.type() == "string")') AS s
            WHERE NOT kanon.is_plain(s #>> '{}')) THEN
            RAISE EXCEPTION USING ERRCODE = '42602',
                MESSAGE = 'a name has control characters, or characters that turn text around';
        END IF;
        CASE _told.rule
        WHEN 'own staged' THEN
            _may := kanon.is_own_staged(caller, _text);
        WHEN 'ending' THEN
            _may := NOT EXISTS (
                SELECT FROM jsonb_path_query(_told.value, 'lax $[*]') AS s
                WHERE coalesce(s #>> '{}', 'none') !~ '^(_[a-z]{3}|_draws)?$');
        WHEN 'columns' THEN
            -- Those of the caller are refused, too, but for another reason.
            _may := NOT EXISTS (
                SELECT FROM jsonb_to_recordset(_told.value) AS c (type oid, collating oid)
                LEFT JOIN pg_type AS t ON t.oid = c.type
                LEFT JOIN pg_collation AS l ON l.oid = c.collating
                JOIN pg_roles AS o ON o.oid IN (t.typowner, l.collowner)
                WHERE NOT o.rolsuper AND NOT pg_has_role(caller, o.oid, 'USAGE'));
        WHEN 'free name' THEN
            _may := NOT EXISTS (
                SELECT FROM kanon.publication AS p
                WHERE (p.name = _text OR p.relations && ARRAY(
                        SELECT _text || (s #>> '{}')
                        FROM jsonb_path_query(given -> 'suffixes', 'lax $[*]') AS s))
                  AND NOT kanon.is_publisher(caller, p));
        WHEN 'own publication' THEN
            _may := NOT EXISTS (SELECT FROM kanon.publication AS p
                                WHERE p.name = _text AND NOT kanon.is_publisher(caller, p));
        WHEN 'own release' THEN
            _may := NOT EXISTS (
                SELECT FROM kanon.release AS r
                LEFT JOIN kanon.publication AS p ON p.publication_id = r.publication_id
                WHERE r.publication_id = _text::bigint AND NOT CASE
                    WHEN p.publication_id IS NULL THEN r.publisher IS NOT DISTINCT FROM caller
                    ELSE kanon.is_publisher(caller, p)
                        -- A release goes on under its own name.
                        AND p.name = coalesce(given ->> 'name', p.name) END);
        WHEN 'readable source' THEN
            PERFORM kanon.require_readable(caller, s) FROM kanon.source AS s
            WHERE s.source_id = _text::bigint;
        WHEN 'own description' THEN
            PERFORM kanon.require_own_description(caller, _text::oid);
        WHEN 'own label' THEN
            _may := kanon.is_own_label(caller, _text, NULL);
        WHEN 'ticket' THEN
            _may := NOT EXISTS (
                SELECT s #>> '{}' FROM jsonb_path_query(_told.value, 'lax $[*]') AS s
                EXCEPT SELECT kanon.ticket(caller, r) FROM kanon.releases_of(given) AS r);
        WHEN 'anything', 'own answer', 'names', 'as registered' THEN
            NULL;
        ELSE
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = 'an errand is told something that it has no use for';
        END CASE;
        IF NOT _may THEN
            RAISE EXCEPTION USING ERRCODE = '42501',
                MESSAGE = CASE WHEN _told.rule IN ('own publication', 'own release', 'free name')
                    THEN 'only the role that published a publication can do this'
                    ELSE format('%s must be %s', _told.field, (SELECT r.says
                        FROM kanon.errand_rules() AS r WHERE r.rule = _told.rule)) END;
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.require_told IS 'refuses what an errand may not be told by a role';

CREATE OR REPLACE FUNCTION kanon.is_own_staged(role oid, prefix text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN kanon.setting AS s ON s.name = 'published_schema' AND s.value = n.nspname
        WHERE starts_with(c.relname, prefix) AND c.relkind IN ('r', 'v', 'm', 'S')
          -- INSERT marks what is staged, and the right to grant it what is published.
          AND NOT EXISTS (
              SELECT FROM aclexplode(c.relacl) AS a
              WHERE a.grantor = c.relowner AND a.grantee = role
                AND (a.privilege_type = 'INSERT' OR a.is_grantable)));
END
$function$;
COMMENT ON FUNCTION kanon.is_own_staged IS 'whether no relation whose name begins so is another''s';

CREATE OR REPLACE FUNCTION kanon.is_own_label(role oid, label text, but bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- Nobody can tell who may read a source elsewhere: its label is whose who first published it.
    -- Of roles that are gone, anybody may take it over.
    RETURN kanon.is_administrator(role) OR coalesce((
        SELECT pg_has_role(role, r.publisher, 'USAGE')
        FROM kanon.release AS r JOIN pg_roles AS u ON u.oid = r.publisher
        WHERE r.base_names = ARRAY[kanon.name_elsewhere(label)]
          AND r.publication_id IS DISTINCT FROM but
        ORDER BY r.release_id LIMIT 1), true);
END
$function$;
COMMENT ON FUNCTION kanon.is_own_label IS
    'whether a role may publish under a label: it was the first, or nobody has; but for one release';

CREATE OR REPLACE FUNCTION kanon.releases_of(given jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT r.release_id FROM (
        SELECT s.schema_name, s.relation_name FROM kanon.source AS s
        WHERE s.source_id = (given ->> 'source_id')::bigint
        UNION ALL
        SELECT '', given ->> 'label' WHERE given ->> 'label' IS NOT NULL
        UNION ALL
        SELECT p.source_schema, p.source_relation FROM kanon.publication AS p
        WHERE p.name = given ->> 'name' AND NOT given ? 'source_id' AND NOT given ? 'label'
    ) AS s (schema, relation)
    CROSS JOIN LATERAL kanon.bases(kanon.named(s.schema, s.relation)) AS b
    JOIN kanon.release AS r ON r.bases && b OR r.base_names && CASE s.schema
        WHEN '' THEN ARRAY[kanon.name_elsewhere(s.relation)] ELSE kanon.base_names(b) END;
END
$function$;
COMMENT ON FUNCTION kanon.releases_of IS 'the releases about the people of the source of an errand';
