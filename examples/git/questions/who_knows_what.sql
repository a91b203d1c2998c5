-- Who knows a folder best, and how few people know half of it?
-- A commit counts half as much for every 180 days that it is older than the newest one.
WITH (SELECT max(committed_at) FROM Commit) AS newest
SELECT
    if(folder = '', '(top)', folder) AS place,
    argMax(name, knows) AS best,
    round(100 * max(knows) / sum(knows)) AS percent,
    count() AS people,
    arrayFirstIndex(known -> known >= sum(knows) / 2, arrayCumSum(arrayReverseSort(groupArray(knows)))) AS bus_factor
FROM
(
    SELECT
        arrayStringConcat(arraySlice(splitByChar('/', File.folder), 1, 3), '/') AS folder,
        Person.email,
        any(Person.name) AS name,
        sum(exp2(-dateDiff('day', Commit.committed_at, newest) / 180)) AS knows
    FROM Change__CHANGED AS changed
    INNER JOIN File ON File.path = changed.to_path
    INNER JOIN Commit ON Commit.sha = changed.from_sha
    INNER JOIN Commit__AUTHORED AS authored ON authored.to_sha = changed.from_sha
    INNER JOIN Person ON Person.email = authored.from_email
    GROUP BY folder, Person.email
)
GROUP BY folder
ORDER BY sum(knows) DESC, place
LIMIT 10
