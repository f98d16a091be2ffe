"""What has gone wrong in software like this, by the numbers that tests are marked with.

A test that tries one of these attacks has the mark ``@pytest.mark.pitfall(number)``, and `make
generate` lists it in docs/reference/security-tests.md. The mark belongs to the test function
itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Pitfall(NamedTuple):
    """Something that can go wrong, and how much of it is tested."""

    title: str
    attack: str
    """What someone does, or sees."""
    missing: str = ""
    """What no test covers yet, and why."""


PITFALLS: Final[dict[int, Pitfall]] = {
    1: Pitfall(
        "The order of rows joins people to values",
        "Two tables written from the same rows are joined by where their rows lie, or by the lines"
        " of a dump.",
    ),
    2: Pitfall(
        "Look-alikes in pg_temp",
        "A caller's temporary table, type or function is taken for the server's, by a function"
        " with other rights.",
    ),
    3: Pitfall(
        "Names that are read as SQL",
        "A table, column, role or key of a JSON object has a name full of quotes, comments and"
        " formats.",
    ),
    4: Pitfall(
        "An installation that adopts what lies in its way",
        "Somebody makes the schema, a function, an operator or a table before the administrator"
        " installs.",
    ),
    5: Pitfall(
        "Functions for everybody, workers that may do everything",
        "Any role calls what has more rights than it; or code attached to one's own table is run"
        " by a role with more rights.",
    ),
    6: Pitfall(
        "Settings that are evaluated",
        "An option, a rule or an entry of the catalog has an expression in it, which runs with"
        " the rights of whoever publishes, verifies or asks.",
    ),
    7: Pitfall(
        "Seeds that can be read, or chosen",
        "Whoever knows the random numbers repeats the shuffling, and undoes it.",
    ),
    8: Pitfall(
        "EXPLAIN counts",
        "A plan shows how many rows of a table that one may not read have a value.",
    ),
    9: Pitfall(
        "Statistics for everybody",
        "The server's catalogs tell about tables that one may not read.",
        "How many rows a table has, how large it is and how often it was read or written,"
        " PostgreSQL shows to every role that may connect; we cannot hide it"
        " ([what is public](../understand/privacy.md#what-is-public)).",
    ),
    10: Pitfall(
        "Data in messages",
        "An error, notice, traceback or the server's log quotes a value; a cheap function in a"
        " condition sees rows before the view's own condition does.",
    ),
    11: Pitfall(
        "A query that two parsers read differently",
        "What was checked is not what is run.",
    ),
    12: Pitfall(
        "Answers that know more than the publication",
        "If estimates read the source, the difference between two of them, or the mean of many,"
        " tells about a person.",
    ),
    13: Pitfall(
        "Several releases of the same people",
        "The values that a person may have in one release and those in another have only one in"
        " common.",
        "Releases of different kinds, and those that are gone, are refused without being measured;"
        " once accepted, nothing bounds what they tell together"
        " ([releases](../howto/releases.md)).",
    ),
    14: Pitfall(
        "A reader who knows the algorithm",
        "The algorithm is run on every table that there may be, and compared with what was"
        " published; numbers of buckets follow the data.",
        "Constraints on generalized rows and `k_concealment` do not hold against such a reader;"
        " their guarantees say so"
        " ([privacy](../understand/privacy.md#what-is-promised)).",
    ),
    15: Pitfall(
        "The wrong thing is counted",
        "Rows are counted for people, NULLs are overlooked, or a planner keeps an answer from"
        " before a change.",
    ),
    16: Pitfall(
        "Some of the rows",
        "Row security, partitions or inheriting tables hide rows from the one who publishes.",
    ),
    17: Pitfall(
        "One session, several users",
        "In a pool, the next user finds rows, plans, settings or rights of the one before.",
    ),
    18: Pitfall(
        "Files of a solver",
        "A model that was made from the data stays in a temporary folder when its solver is"
        " killed.",
    ),
    19: Pitfall(
        "Dumps of the secret half",
        "A backup of the publications has what they hide: who is in which row, or which values.",
        "A server that logs the parameters of statements writes down where each record goes, if"
        " the publisher uses Python or the command line"
        " ([what the log has](../howto/operation.md#what-the-log-has)).",
    ),
    20: Pitfall(
        "Buckets that are as large as they must be",
        "The record that opened a bucket is the one that the bucket waited for: the rare one.",
    ),
    21: Pitfall(
        "A publisher's code runs with other people's rights",
        "An index on an expression, statistics, a child table, a cast or a view in place of a"
        " published relation runs when somebody verifies, measures or asks.",
    ),
    22: Pitfall(
        "Metrics of hidden values",
        "A loss that includes what was left out tells what it was.",
    ),
    23: Pitfall(
        "Answers in the middle of a replacement",
        "An estimate waits for the replacement, and then counts tables whose rows it cannot see.",
        "QIT, SAT and the codes, read by their own names, may look empty without an error to a"
        " snapshot from before ([replacing](../howto/operation.md#replacing)).",
    ),
    24: Pitfall(
        "Columns that changed since they were described",
        "A renamed identifier, or a new column, is published in the clear.",
    ),
    25: Pitfall(
        "One query takes the server",
        "A long list, many groups or a deep text needs gigabytes or minutes before anything"
        " stops it.",
    ),
    26: Pitfall(
        "A catalog that any publisher writes",
        "A stranger describes another's table, or plants a publication that makes an"
        " administrator drop tables.",
    ),
    27: Pitfall(
        "Root follows a link",
        "In a private cluster's folder that somebody else owns, a link leads to a file of root's.",
    ),
    28: Pitfall(
        "Left-over records",
        "Who is suppressed entirely follows from the quasi-identifiers, and the other columns of"
        " these rows are published.",
    ),
    29: Pitfall(
        "Locks that anybody may take",
        "A role that can only connect keeps everybody from publishing.",
        "Who keeps a publication in use delays its replacement, which is refused after a minute"
        " ([replacing](../howto/operation.md#replacing)); a withdrawal does not wait"
        " ([withdrawing](../howto/operation.md#withdrawing)).",
    ),
    30: Pitfall(
        "Nobody says that releases add up",
        "A publisher replaces a publication again and again, and hears no warning.",
        "Copies of a source under another name, and views that read it through a function, are not"
        " recognised ([releases](../howto/releases.md#what-is-not-covered)).",
    ),
    31: Pitfall(
        "Dumps without their roles, roles that are made again",
        "A restored dump has lost its readers, and nobody says so; a new role has the rights of"
        " an old one of the same name.",
    ),
    32: Pitfall(
        "Promises that bind nothing",
        "With thresholds of 1, or `k => 1`, everything is published, and every check holds.",
    ),
    33: Pitfall(
        "A reader undoes that a question was asked",
        "With ROLLBACK, a savepoint, an error or a crash, an answer is told and not counted, and a"
        " budget never ends.",
        "Copies of the database, and who may ask without being counted"
        " ([models](../howto/models.md#who-asks-and-who-pays)).",
    ),
    34: Pitfall(
        "An owner-side trigger believes what it is told",
        "A publisher names another's publication as the one to refresh, and has its release.",
    ),
    35: Pitfall(
        "Poisoned ledger",
        "A view over a table that its maker may not read is published, and the owner's next"
        " release is refused.",
    ),
    36: Pitfall(
        "Who asks, by a setting",
        "A GRANT inside a SECURITY DEFINER function passes, since another role seems to give it.",
    ),
    37: Pitfall(
        "Triggers that are switched off",
        "With session_replication_role = replica, a withdrawal succeeds and drops nothing.",
    ),
    38: Pitfall(
        "What others have made of a publication",
        "A reader's view, function or policy keeps a publication from being withdrawn, refreshed"
        " or replaced; or a replacement locks readers out.",
        "Copies that readers made, such as rows of their own materialized views, stay theirs. A"
        " superuser's foreign key on a published table keeps it from being emptied.",
    ),
    39: Pitfall(
        "Data that act on their reader",
        "Escape codes and texts that look like formulas, in data or names, reach a terminal or a"
        " spreadsheet.",
        "Of what psql and other clients print, nothing is escaped: they read the publications"
        " themselves.",
    ),
    40: Pitfall(
        "A demo takes what it finds",
        "A table or a publication of somebody's has the name that the demo wants.",
    ),
    41: Pitfall(
        "The best of several drafts",
        "A publisher draws again until a draft suits them; who knows that infers more from it than"
        " any bound allows.",
        "Superusers, other requests, methods that the clock ends, and Spark"
        " ([drafts](../understand/privacy.md#what-is-promised)).",
    ),
    42: Pitfall(
        "What every role sees of somebody's work",
        "Comments on publications and drafts, and the names of sessions, are shown to whoever may"
        " connect.",
        "That a session works, for how long, and that a transaction was undone: PostgreSQL shows"
        " it to everybody. Columns, their names and types are shown, too, also of drafts.",
    ),
    43: Pitfall(
        "Known matches travel",
        "Who learns which rows are some people's uses that against the others, through the graph of"
        " who may have which row.",
        "Nothing is promised of freeform rows then, and their guarantee says so; in classes, c"
        " known rows leave everybody else k - c ([known"
        " matches](../understand/freeform.md#known-matches)).",
    ),
    44: Pitfall(
        "Waiting tells",
        "Publishing is refused, or people wait, because of their own values; once they are"
        " published, whoever knows that they waited is surer of them than the bound.",
        "That is not covered, as the guarantee and `verify` say"
        " ([people who wait](../howto/releases.md#people-who-wait)).",
    ),
    45: Pitfall(
        "A promise without its condition",
        "The guarantee of a publication leaves out what it takes to hold.",
    ),
    46: Pitfall(
        "A proof of something else",
        "A bound is shown, or a gap of 0, that was proven for other records, without the"
        " constraints, or for another loss than that of what is published.",
    ),
    47: Pitfall(
        "A missing value passes for a value",
        "A class of three people with HIV and one without a value counts as 2-diverse.",
    ),
    48: Pitfall(
        "A condition means something else on a publication than on the source",
        "Columns of every type, with infinite values and with more digits than a floating-point"
        " number has: a bound that is called certain excludes the truth.",
        "Arrays of all types are not tried, some are.",
    ),
    49: Pitfall(
        "An error that leaves out what coding hides",
        "The average of a column that is coded at its top, whose error does not reach the truth.",
    ),
    50: Pitfall(
        "Draws that tell more than the publication",
        "Records are drawn with the help of the source, or past the values of a bucket, so that"
        " many draws tell who has which value.",
    ),
    51: Pitfall(
        "A worker that can become others",
        "A role whose jobs a worker runs has code attached to its tables, which tries SET ROLE, and"
        " forges notifications, jobs and answers.",
        "A role whose login is stopped can log in as its worker's login, where its code has set a"
        " password: `kanon service forbid` drops that"
        " ([workers](../howto/workers.md)).",
    ),
    52: Pitfall(
        "What an administrator takes over",
        "A member of a group gives the group a function or a table, which uninstalling hands to the"
        " superuser who removes the group.",
    ),
    53: Pitfall(
        "Commands that run what lies in their way",
        "Somebody who may create a schema lays functions, operators, views and tables named like"
        " those that an administrator's commands use, in schemas of all names that are searched.",
    ),
    54: Pitfall(
        "A watch that falls silent",
        "Somebody gets to read two publications of the same people by a membership or a grant that"
        " nobody is asked about, and what notes it takes it for accepted.",
    ),
    55: Pitfall(
        "A session from before an upgrade",
        "Old code answers for new functions, with columns that it knows nothing of left empty.",
    ),
    56: Pitfall(
        "A right that comes back",
        "A publisher grants once more what was taken from a reader of another release, or columns"
        " of it, or keeps the watch over grants busy.",
        "As a service, rights are looked after a moment later, and who holds a lock on the rights"
        " of their own publication keeps them for as long: the worker's log says so.",
    ),
    57: Pitfall(
        "One role holds the service",
        "Jobs that hang, or that are many, take all places of a worker; arguments and answers that"
        " are kept fill the disk of the server.",
        "As many roles as a worker has places can hold it, until the limits of time.",
    ),
    58: Pitfall(
        "A login that cannot be closed",
        "What a login owns, or does at this moment, keeps an administrator from taking its rights.",
    ),
    59: Pitfall(
        "Somebody powerful, by another name",
        "A member of a superuser submits jobs, or a login fetches them that somebody made before"
        " kanon_db was installed.",
    ),
    60: Pitfall(
        "Settings that end at the door",
        "Limits, and the privacy of logs, are set for a role, and do not hold for its jobs.",
        "Timeouts of idle sessions do not count what a job calculates.",
    ),
    61: Pitfall(
        "A row that is kept for its value",
        "Of several rows of a person that are alike in all that is not sensitive, one is kept by a"
        " hash of its value: whoever knows how to hash knows which values it cannot be.",
    ),
    62: Pitfall(
        "Another draft in other words",
        "A publisher describes the same records otherwise (keep, entity, the order of columns) or"
        " asks for the same with another number, and keeps the draft that shows most.",
        "Requests that find another result are other drafts"
        " ([drafts](../understand/privacy.md#drafts)).",
    ),
    63: Pitfall(
        "A value of all rows of a person",
        "Who knows how many rows somebody has knows how large the greatest of their values is.",
    ),
    64: Pitfall(
        "A verdict in words beside a figure that exceeds it",
        "A report says that inference is bounded, of the first sensitive column or by a sentence,"
        " while an attack on another column, or a learner, is right more often.",
    ),
    65: Pitfall(
        "Attacks that understate",
        "A learner is measured on people who are alike, or with an unlucky start: whoever is easy"
        " to find is told far more surely.",
    ),
    66: Pitfall(
        "A bound on cells that are lists",
        "A sensitive cell has several codes: no cell is above its bound in a bucket, and one of the"
        " codes is in all of them.",
    ),
    67: Pitfall(
        "Figures that a publisher enters, and readers' sessions believe",
        "An entry says 100,000,000 buckets, or has no, other or odd figures: whoever asks reads"
        " gigabytes, or is told of a bug.",
    ),
    68: Pitfall(
        "A certain count of other records than are meant",
        "One record of each person is published: how many took a drug is answered with certain"
        " bounds, of the kept records alone.",
    ),
    69: Pitfall(
        "Hidden groups, and an error of 0",
        "Cells are suppressed: groups that exist are not listed, and the one that is has all"
        " records, without an error.",
    ),
    70: Pitfall(
        "A statement that never ends",
        "A question becomes a statement that lists each value of ranges of milliseconds, or each"
        " pair of values of two columns, and fills the disk of whoever runs it.",
    ),
    71: Pitfall(
        "A file is read as something else",
        "Codes that differ by a last zero become one number, quotes within fields join the records"
        " between them, a spreadsheet's dates stand for ranges: bounds of answers are then certain"
        " about what the file does not say.",
        "Values that were changed before the file was written are noted where they are unlike the"
        " others of their column.",
    ),
    72: Pitfall(
        "A type takes something from a value",
        "A named type is shorter than its values, or a day loses the time zone in which it began.",
    ),
    73: Pitfall(
        "Free texts that name people",
        "A column of remarks is published as it is, with the names that somebody wrote in them.",
    ),
    74: Pitfall(
        "A source that changes under its publications",
        "A column or the table is dropped, renamed or moved; registering it again publishes what"
        " was an identifier, or takes a publication's batches and budget away.",
    ),
}
