-- Which files are never finished: changed in the most commits of the last year, by whom, and how much?
-- The year ends with the newest commit.
SELECT
    Change.path AS file,
    count() AS commits,
    uniqExact(authored.from_email) AS people,
    ifNull(sum(additions), 0) AS added,
    ifNull(sum(deletions), 0) AS removed
FROM Change
INNER JOIN File ON File.path = Change.path
INNER JOIN Commit ON Commit.sha = Change.sha
INNER JOIN Commit__AUTHORED AS authored ON authored.to_sha = Change.sha
WHERE Commit.committed_at > (SELECT max(committed_at) FROM Commit) - INTERVAL 365 DAY
GROUP BY file
ORDER BY commits DESC, added + removed DESC, file
LIMIT 10
