{#- A publication keeps what it guarantees: one failure for each check of kanon.verify that fails.
    The model is the publication by its name, as a source in the schema of publications. -#}
{% test verified(model) %}
SELECT "check", bound, measured
FROM kanon.verify('{{ dbt.escape_single_quotes(model.identifier) }}')
WHERE holds IS NOT TRUE
{% endtest %}
