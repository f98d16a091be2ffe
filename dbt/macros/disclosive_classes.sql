{#- Any model: at least k people share each combination of its quasi-identifiers. -#}
{% test k_anonymous(model, k, quasi_identifiers, entity=none) %}
{{ kanon_db.failing_measures(model, quasi_identifiers, {'k': k, 'entity': entity}) }}
{% endtest %}


{#- Any model: each such combination has at least l values of each sensitive column. -#}
{% test l_diverse(model, l, quasi_identifiers, sensitive, entity=none) %}
{{ kanon_db.failing_measures(model, quasi_identifiers, {'sensitive': sensitive, 'l': l, 'entity': entity}) }}
{% endtest %}


{#- One failure for each bound that does not hold: the measure, never a value. -#}
{% macro failing_measures(model, quasi_identifiers, bounds) -%}
SELECT measure, value, bound, classes, records
FROM kanon.check_relation({{ kanon_db.arguments([model | string, quasi_identifiers], bounds) }})
WHERE bound IS NOT NULL AND holds IS NOT TRUE
{%- endmacro %}
