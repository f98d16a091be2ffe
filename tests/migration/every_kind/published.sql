-- What tests/migration/before/0.1.0-every-kind.sql.gz holds: one table, published in every way.
INSERT INTO kanon.setting VALUES ('combined_releases', 'warn');
CREATE TABLE public.clinic (
    id integer, seen date, age integer, born date, income numeric(9, 2), height real,
    town text, ward text COLLATE "C", smoker boolean, ill text, cost integer
);
SELECT setseed(0.25);
INSERT INTO public.clinic
SELECT i, DATE '2024-01-01' + i / 10, 18 + (random() * 72)::int,
    CASE WHEN random() > 0.05 THEN DATE '1935-01-01' + (random() * 25000)::int END,
    round((random() * random() * 90000)::numeric, 2), (150 + random() * 50)::int::real / 2,
    'town ' || (random() * random() * 12)::int,
    CASE WHEN random() > 0.1 THEN chr(65 + (random() * 6)::int) END, random() < 0.3,
    CASE WHEN random() > 0.03 THEN 'ill ' || (random() * 9)::int END, (random() * 400)::int
FROM generate_series(1, 300) AS i;
CREATE TABLE public.stays AS SELECT id, age, town, smoker, ill FROM public.clinic WHERE id <= 200;
CREATE VIEW public.coarse AS SELECT age, born, income, ward, ill FROM public.clinic;

SELECT kanon.register_source('public.clinic', '{age,born,income,height,town,ward,smoker}', 'ill',
    identifiers => '{id}', insensitive => '{cost}', arrival => 'seen');
SELECT kanon.register_source('public.stays', '{age,town,smoker}', 'ill', entity => 'id');
SELECT kanon.register_source('public.coarse', '{age,born,income,ward}', 'ill', attributes => '{
    "age": {"round": 5, "top": 80, "bottom": 20}, "born": {"round": "year"},
    "income": {"round": 1000, "top": 50000},
    "ward": {"hierarchy": {"A": ["left", "all"], "B": ["left", "all"], "C": ["left", "all"],
        "D": ["right", "all"], "E": ["right", "all"], "F": ["right", "all"],
        "G": ["right", "all"]}}}');

SELECT name FROM kanon.publish_buckets('public.clinic', 'buckets_random', privacy => '{"l": 3}',
    assignment => 'random');
SELECT name FROM kanon.publish_buckets('public.clinic', 'buckets_cells',
    privacy => '{"theta": 4, "base": 0.05}');
SELECT name FROM kanon.publish_buckets('public.clinic', 'buckets_local', privacy => '{"l": 2}',
    assignment => 'local', accept => '{"uninformed_reader": "a test"}');
SELECT name FROM kanon.publish_buckets('public.stays', 'stays_m', privacy => '{"l": 2}',
    assignment => 'm_invariant');
SELECT name FROM kanon.publish_generalized('public.clinic', 'rows_mondrian', k => 5,
    method => 'mondrian');
SELECT name FROM kanon.publish_generalized('public.clinic', 'rows_greedy', k => 5,
    method => 'greedy_search', constraints => '{"l": 2}');
SELECT name FROM kanon.publish_generalized('public.coarse', 'rows_coarse', k => 5,
    method => 'mondrian');
SELECT name FROM kanon.publish_freeform('public.clinic', 'rows_freeform', k => 4);
SELECT name FROM kanon.publish_freeform('public.coarse', 'coarse_freeform', k => 4);
SELECT name FROM kanon.publish_suppressed('public.clinic', 'rows_suppressed', k => 4);
SELECT name FROM kanon.publish_model('public.stays', 'model', label => 'smoker',
    features => '{"age": {}, "town": {}}', members => 5,
    input_noise => 0, accept => '{"model_without_budget": "a test"}');

INSERT INTO public.clinic
SELECT id + 300, seen + 90, age, born + 3, income + 1, height, town, ward, smoker, ill, cost
FROM public.clinic WHERE id <= 100;
DELETE FROM public.stays WHERE id <= 25;
INSERT INTO public.stays SELECT id, age, town, smoker, ill FROM public.clinic
WHERE id BETWEEN 201 AND 240;
SELECT name FROM kanon.refresh('buckets_cells');
SELECT name FROM kanon.refresh('rows_mondrian');
SELECT name FROM kanon.refresh('rows_suppressed');
SELECT name FROM kanon.refresh('stays_m');
