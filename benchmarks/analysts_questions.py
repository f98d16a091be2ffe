"""Forty questions as analysts ask them, in words and in SQL; ``{t}`` is the table."""

from __future__ import annotations

from typing import Final, NamedTuple


class Question(NamedTuple):
    """What somebody wants to know, and how it is asked."""

    words: str
    query: str


QUESTIONS: Final = (
    Question(
        "How many people are there?",
        "SELECT COUNT(*) FROM {t}",
    ),
    Question(
        "How many women?",
        "SELECT COUNT(*) FROM {t} WHERE sex = 'Female'",
    ),
    Question(
        "How many are in sales?",
        "SELECT COUNT(*) FROM {t} WHERE occupation = 'Sales'",
    ),
    Question(
        "How many women are in sales?",
        "SELECT COUNT(*) FROM {t} WHERE sex = 'Female' AND occupation = 'Sales'",
    ),
    Question(
        "How many managers are in their thirties?",
        "SELECT COUNT(*) FROM {t} WHERE age BETWEEN 30 AND 39 AND occupation = 'Exec-managerial'",
    ),
    Question(
        "How many people work more than full time in a craft?",
        "SELECT COUNT(*) FROM {t} WHERE hours > 40 AND occupation = 'Craft-repair'",
    ),
    Question(
        "How many have neither an office job nor a manual one?",
        "SELECT COUNT(*) FROM {t} WHERE occupation NOT IN ('Adm-clerical', 'Craft-repair',"
        " 'Handlers-cleaners', 'Machine-op-inspct')",
    ),
    Question(
        "How many professionals earn more than 50K?",
        "SELECT COUNT(*) FROM {t} WHERE salary = '>50K' AND occupation = 'Prof-specialty'",
    ),
    Question(
        "How many are young, or in the armed forces?",
        "SELECT COUNT(*) FROM {t} WHERE age < 25 OR occupation = 'Armed-Forces'",
    ),
    Question(
        "How many divorced or separated people are in services?",
        "SELECT COUNT(*) FROM {t} WHERE marital IN ('Divorced', 'Separated')"
        " AND occupation LIKE '%service'",
    ),
    Question(
        "How many people have each occupation?",
        "SELECT occupation, COUNT(*) AS people FROM {t} GROUP BY occupation ORDER BY people DESC",
    ),
    Question(
        "How many women have each occupation?",
        "SELECT occupation, COUNT(*) AS women FROM {t} WHERE sex = 'Female'"
        " GROUP BY occupation ORDER BY women DESC",
    ),
    Question(
        "How many men and women are managers?",
        "SELECT sex, COUNT(*) FROM {t} WHERE occupation = 'Exec-managerial' GROUP BY sex",
    ),
    Question(
        "What are the five most frequent occupations of people who earn more than 50K?",
        "SELECT occupation, COUNT(*) AS people FROM {t} WHERE salary = '>50K'"
        " GROUP BY occupation ORDER BY people DESC LIMIT 5",
    ),
    Question(
        "How many of each race and sex are in sales?",
        "SELECT race, sex, COUNT(*) FROM {t} WHERE occupation = 'Sales' GROUP BY race, sex",
    ),
    Question(
        "Which occupations have more than 1,500 married people?",
        "SELECT occupation, COUNT(*) AS people FROM {t} WHERE marital = 'Married-civ-spouse'"
        " GROUP BY occupation HAVING COUNT(*) > 1500",
    ),
    Question(
        "How many professionals are there in each decade of age?",
        "SELECT age / 10 * 10 AS decade, COUNT(*) FROM {t}"
        " WHERE occupation = 'Prof-specialty' GROUP BY decade ORDER BY decade",
    ),
    Question(
        "How many clerks are young, middle-aged and old?",
        "SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 50 THEN 'middle-aged' ELSE 'old' END"
        " AS generation, COUNT(*) FROM {t} WHERE occupation = 'Adm-clerical'"
        " GROUP BY generation",
    ),
    Question(
        "How many people of each salary class work part time in services?",
        "SELECT salary, COUNT(*) FROM {t} WHERE hours < 35 AND occupation = 'Other-service'"
        " GROUP BY salary",
    ),
    Question(
        "How many people of each occupation went to college?",
        "SELECT occupation, COUNT(*) FILTER (WHERE education >= 13) AS college FROM {t}"
        " GROUP BY occupation",
    ),
    Question(
        "What share of managers are women, in percent?",
        "SELECT 100.0 * COUNT(*) FILTER (WHERE sex = 'Female') / COUNT(*) FROM {t}"
        " WHERE occupation = 'Exec-managerial'",
    ),
    Question(
        "What share of women are managers, in percent?",
        "SELECT 100.0 * COUNT(*) FILTER (WHERE occupation = 'Exec-managerial') / COUNT(*)"
        " FROM {t} WHERE sex = 'Female'",
    ),
    Question(
        "What percentage of each occupation earns more than 50K?",
        "SELECT occupation, 100.0 * COUNT(*) FILTER (WHERE salary = '>50K') / COUNT(*)"
        " AS percent FROM {t} GROUP BY occupation",
    ),
    Question(
        "What share of men and of women work in a craft?",
        "SELECT sex, 1.0 * COUNT(*) FILTER (WHERE occupation = 'Craft-repair')"
        " / NULLIF(COUNT(*), 0) AS share FROM {t} GROUP BY sex",
    ),
    Question(
        "How many women are there for each man in clerical jobs?",
        "SELECT 1.0 * COUNT(*) FILTER (WHERE sex = 'Female')"
        " / NULLIF(COUNT(*) FILTER (WHERE sex = 'Male'), 0) FROM {t}"
        " WHERE occupation = 'Adm-clerical'",
    ),
    Question(
        "How old are people on average?",
        "SELECT AVG(age) FROM {t}",
    ),
    Question(
        "How old are managers on average?",
        "SELECT AVG(age) FROM {t} WHERE occupation = 'Exec-managerial'",
    ),
    Question(
        "How many hours do farmers work on average?",
        "SELECT AVG(hours) FROM {t} WHERE occupation = 'Farming-fishing'",
    ),
    Question(
        "How long did people of each occupation go to school on average?",
        "SELECT occupation, AVG(education) AS years FROM {t} GROUP BY occupation",
    ),
    Question(
        "How many hours do all people in sales work together?",
        "SELECT SUM(hours) FROM {t} WHERE occupation = 'Sales'",
    ),
    Question(
        "How many professionals are there, how old are they, and how long do they work?",
        "SELECT COUNT(*), AVG(age), AVG(hours) FROM {t} WHERE occupation = 'Prof-specialty'",
    ),
    Question(
        "How many hours do men and women in services work on average?",
        "SELECT sex, AVG(hours) FROM {t} WHERE occupation = 'Other-service' GROUP BY sex",
    ),
    Question(
        "How much longer do men work than women, in technical support?",
        "SELECT AVG(hours) FILTER (WHERE sex = 'Male')"
        " - AVG(hours) FILTER (WHERE sex = 'Female') FROM {t}"
        " WHERE occupation = 'Tech-support'",
    ),
    Question(
        "What would all people in sales work in a year of 48 weeks?",
        "SELECT 48 * SUM(hours) FROM {t} WHERE occupation = 'Sales'",
    ),
    Question(
        "How many of each race are in protective services, if small groups are one?",
        "SELECT COALESCE(NULLIF(NULLIF(race, 'Other'), 'Amer-Indian-Eskimo'), 'small') AS grp,"
        " COUNT(*) FROM {t} WHERE occupation = 'Protective-serv' GROUP BY grp",
    ),
    Question(
        "How many people whose age ends with 0 drive or move things?",
        "SELECT COUNT(*) FROM {t} WHERE age % 10 = 0 AND occupation = 'Transport-moving'",
    ),
    Question(
        "How many work more hours than they are old, as machine operators?",
        "SELECT COUNT(*) FROM {t} WHERE hours > age AND occupation = 'Machine-op-inspct'",
    ),
    Question(
        "How many are managers if they are over 40, and professionals otherwise?",
        "SELECT COUNT(*) FROM {t} WHERE CASE WHEN age > 40 THEN occupation = 'Exec-managerial'"
        " ELSE occupation = 'Prof-specialty' END",
    ),
    Question(
        "Of people from 30 who never married, how many have each occupation?",
        "SELECT job, COUNT(*) FROM (SELECT occupation AS job, age FROM {t}"
        " WHERE marital = 'Never-married') AS single WHERE age >= 30 GROUP BY job",
    ),
    Question(
        "How many managers went to school for how long, in steps of two years?",
        "WITH managers AS (SELECT education AS years FROM {t}"
        " WHERE occupation = 'Exec-managerial')"
        " SELECT years / 2 * 2 AS years_from, COUNT(*) FROM managers GROUP BY years_from",
    ),
)
"""Asked of every publication, in this order."""
