{#- A publication of kanon_db: published when dbt runs first, refreshed when it runs again, and
    published anew, in its own place, with --full-refresh. The model is SELECT * FROM one relation,
    which stays the same table from run to run: a source, a seed, or an incremental model.

    config:
      kind      buckets, generalized, freeform, suppressed or model
      register  parameters of kanon.register_source, by name
      publish   parameters of kanon.publish_<kind>, by name
      refresh   parameters of kanon.refresh, by name
      schema    such that dbt names the schema of publications -#}
{% materialization kanon_publication, adapter='postgres' %}
  {%- set read = modules.re.fullmatch('(?is)\\s*select\\s+\\*\\s+from\\s+(\\S+|(?:"(?:[^"]|"")*"\\.?)+)\\s*;?\\s*', sql) -%}
  {%- if not read -%}
    {{ exceptions.raise_compiler_error("a publication is made of one relation: write SELECT * FROM {{ ref('...') }}, and shape its rows in a model of their own") }}
  {%- endif -%}
  {%- set kind = config.require('kind') -%}
  {%- if kind not in ['buckets', 'generalized', 'freeform', 'suppressed', 'model'] -%}
    {{ exceptions.raise_compiler_error("there is no kind of publications '" ~ kind ~ "'") }}
  {%- endif -%}
  {%- set source = read[1] -%}
  {%- set name = this.identifier -%}
  {%- set target_relation = this.incorporate(type='view') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- call statement('state', fetch_result=True) -%}
    SELECT (SELECT value FROM kanon.setting WHERE name = 'published_schema') AS schema,
           to_regclass('kanon.jobs') IS NOT NULL AS is_service,
           EXISTS (SELECT FROM kanon.publications AS p WHERE p.name = {{ kanon_db.literal(name) }}) AS is_published,
           EXISTS (SELECT FROM kanon.publications AS p JOIN pg_class AS c
                   ON c.oid = {{ kanon_db.literal(source) }}::regclass
                   WHERE p.source = concat_ws('.', c.relnamespace::regnamespace::name, c.relname)) AS is_described
  {%- endcall -%}
  {%- set state = load_result('state').table.rows[0] -%}
  {%- if state['schema'] != this.schema -%}
    {{ exceptions.raise_compiler_error("publications are in the schema " ~ state['schema'] ~ ", and this model in " ~ this.schema ~ ": set its schema, and let generate_schema_name return it") }}
  {%- endif -%}
  {%- if state['is_published'] and not should_full_refresh() -%}
    {%- do kanon_db.perform('main', 'refresh', [name], config.get('refresh', {}), state['is_service']) -%}
  {%- else -%}
    {%- if not state['is_described'] -%}
      {%- do kanon_db.perform('register', 'register_source', [source], config.require('register'), state['is_service']) -%}
    {%- endif -%}
    {%- set given = dict({'replace': state['is_published']}, **config.get('publish', {})) -%}
    {%- do kanon_db.perform('main', 'publish_' ~ kind, [source, name], given, state['is_service']) -%}
  {%- endif -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {%- do adapter.commit() -%}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- Call a function; where that submits a job, wait for its end, which no worker can bring about
    before the transaction has ended. -#}
{% macro perform(statement_name, function, first, named, is_service) %}
  {%- call statement(statement_name) -%}
    SELECT * FROM kanon.{{ function }}({{ kanon_db.arguments(first, named) }})
  {%- endcall -%}
  {%- if is_service -%}
    {%- call statement('job', fetch_result=True) -%}
      SELECT max(job_id) AS job FROM kanon.jobs WHERE submitted_by = pg_current_xact_id_if_assigned()
    {%- endcall -%}
    {%- do adapter.commit() -%}
    {%- call statement('wait') -%}
      SELECT * FROM kanon.wait({{ load_result('job').table.rows[0]['job'] }})
    {%- endcall -%}
    {#- dbt begins no transaction of its own after a COMMIT. -#}
    {%- call statement('begin', auto_begin=False) -%} BEGIN {%- endcall -%}
  {%- endif -%}
{% endmacro %}


{#- Arguments of a function of kanon_db: the first ones by their position, others by name. -#}
{% macro arguments(first, named) -%}
  {%- set written = [] -%}
  {%- for value in first -%}
    {%- do written.append(kanon_db.literal(value)) -%}
  {%- endfor -%}
  {%- for name, value in named.items() -%}
    {%- do written.append(adapter.quote(name) ~ ' => ' ~ kanon_db.literal(value)) -%}
  {%- endfor -%}
  {{ written | join(', ') }}
{%- endmacro %}


{#- A value as SQL: lists are arrays, and objects are JSON. -#}
{% macro literal(value) -%}
  {%- if value is none -%} NULL
  {%- elif value is mapping -%} '{{ dbt.escape_single_quotes(tojson(value)) }}'
  {%- elif value is boolean or value is number -%} {{ value }}
  {%- elif value is string -%} '{{ dbt.escape_single_quotes(value) }}'
  {%- else -%}
    {%- set written = [] -%}
    {%- for item in value -%}{%- do written.append(kanon_db.literal(item)) -%}{%- endfor -%}
    ARRAY[{{ written | join(', ') }}]{{ '' if written else '::text[]' }}
  {%- endif -%}
{%- endmacro %}
