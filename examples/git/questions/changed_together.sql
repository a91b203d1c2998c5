-- Which files change together, so that one who changes one has to know the other?
-- Commits of more than 20 files say little about any two of them.
WITH
    small AS
    (
        SELECT from_sha AS sha, to_path AS path
        FROM Change__CHANGED
        INNER JOIN File ON File.path = to_path
        WHERE from_sha IN (SELECT from_sha FROM Change__CHANGED GROUP BY from_sha HAVING count() <= 20)
    ),
    often AS (SELECT path, count() AS commits FROM small GROUP BY path HAVING commits >= 5),
    frequent AS (SELECT sha, path FROM small WHERE path IN (SELECT path FROM often))
SELECT
    one.path AS file,
    other.path AS changes_with,
    count() AS together,
    round(100 * together / (any(first.commits) + any(second.commits) - together)) AS percent
FROM frequent AS one
INNER JOIN frequent AS other ON one.sha = other.sha
INNER JOIN often AS first ON first.path = one.path
INNER JOIN often AS second ON second.path = other.path
WHERE one.path < other.path
GROUP BY file, changes_with
HAVING together >= 5
ORDER BY percent DESC, together DESC, file, changes_with
LIMIT 10
