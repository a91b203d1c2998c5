"""`instep.yaml`: finding it, reading it, and errors that say where and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.domain.texts import cleaned
from instep.errors import UserError
from instep.project import InvalidProject, load_project

from .conftest import BASE, Load, Reject
from .declared import documents, files_as_declared


def test_secrets_of_a_file_are_known_by_their_values(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(
        """
name: p
targets:
  index: {type: python, class: "mine:Index", uri: x, options: {who: "${WHO}", table: documents, password: plain-one}}
entities:
  Page:
    source: {type: files, path: docs}
    target: index
    embed: {type: openai, model: m, dimensions: 3, api_key: "${KEY}"}
"""
    )
    load_project(tmp_path, environment={"WHO": "whose-name", "KEY": "key-of-api"})
    said = cleaned("whose-name and plain-one with key-of-api saw no documents")
    assert said == "*** and *** with *** saw no documents"


def test_a_file_in_the_shape_of_the_documentation_is_read(load: Load, tmp_path: Path) -> None:
    project = load(
        """\
name: my-project
ledger: sqlite:///.instep/ledger.db
state: .instep
engine: auto
spark: {master: "local[*]", config: {spark.driver.memory: 1g}}
targets: {index: {type: lance, uri: .instep/index, storage_options: {}}}
entities:
  Document:
    source: {type: files, path: [docs, s3://b/x], include: ["**/*.md"], exclude: [], storage_options: {anon: true}}
    chunk: {size: 800, overlap: 10}
    embed:
      type: openai
      url: http://localhost:1/v1/
      model: m
      dimensions: 8
      api_key: ${OPENAI_API_KEY}
      batch: 64
      requests_per_minute: null
    target: index
    transform: package.module:function
    buckets: 16
    slice_rows: 10000
    work_factor: 1.0
    priority: 40
    limits: {max_document_bytes: 256MB, max_line_bytes: 1MB}
    deletes: {share: 0.2, floor: 100}
""",
        {"OPENAI_API_KEY": "k: {1}"},
    )
    entity = documents(project)
    assert entity.embed.type == "openai"
    assert entity.embed.url == "http://localhost:1/v1"
    assert entity.embed.api_key is not None
    assert entity.embed.api_key.get_secret_value() == "k: {1}"
    assert files_as_declared(project).storage() == {"anon": True}
    assert project.root == tmp_path
    assert project.ledger_url == f"sqlite:///{tmp_path}/.instep/ledger.db"


def test_the_file_is_found_here_or_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "instep.yaml").write_text(BASE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert load_project().root == tmp_path
    assert load_project("../..").root == tmp_path
    assert load_project(tmp_path / "instep.yaml").root == tmp_path


def test_a_given_folder_is_not_searched_upward(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(BASE)
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match="no such project file"):
        load_project(tmp_path / "a")


def test_no_file_anywhere_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="instep init"):
        load_project()


def test_an_unreadable_place_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        load_project(tmp_path)


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_bytes(b"name: x\nstate: \xff\n")
    with pytest.raises(InvalidProject, match=r"instep\.yaml:2: not UTF-8"):
        load_project(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(BASE, encoding="utf-8-sig")
    assert load_project(tmp_path).name == "my-project"


def test_an_unknown_key_names_line_neighbours_and_nearest(reject: Reject) -> None:
    error = reject(BASE.replace("path: docs", "path: docs, inclde: []"))
    assert error.where is not None
    assert error.where.endswith("instep.yaml:6")
    assert error.what == (
        "entities.Document.source.inclde: unknown key (did you mean include?); "
        "allowed: type, path, include, exclude, storage_options, events, inventory"
    )


@pytest.mark.parametrize(
    ("change", "line", "path", "allowed"),
    [
        (("name: my", "nmae: 1\nname: my"), 1, "nmae", "engine"),
        (("uri: .instep/index", "uri: x, url: y"), 3, "targets.index.url", "storage_options"),
        (("path: docs}", "path: docs}\n    chunk:\n      sise: 1"), 8, "entities.Document.chunk.sise", "overlap"),
        (
            ("path: docs}", "path: docs}\n    embed: {type: hashing, modl: 1}"),
            7,
            "entities.Document.embed.modl",
            "dimensions",
        ),
        (("path: docs}", "path: docs}\n    limts: {}"), 7, "entities.Document.limts", "slice_rows"),
    ],
)
def test_unknown_keys_at_every_depth(
    reject: Reject, change: tuple[str, str], line: int, path: str, allowed: str
) -> None:
    (problem,) = reject(BASE.replace(*change)).problems
    assert (problem.line, problem.path) == (line, path)
    assert allowed in problem.allowed
    assert "root" not in problem.allowed


def test_root_is_not_a_key_of_the_file(reject: Reject) -> None:
    assert "unknown key" in reject("root: /x\n" + BASE).what


@pytest.mark.parametrize("state", ["s3://bucket/state", "file:///tmp/state", "a-file", "a-file/below"])
def test_state_that_is_no_folder_is_refused_with_its_line(reject: Reject, tmp_path: Path, state: str) -> None:
    (tmp_path / "a-file").write_text("x")
    error = reject(f"state: {state}\n{BASE}")
    assert [(each.line, each.path) for each in error.problems] == [(1, "state")]
    assert "must be a folder" in str(error)


def test_all_problems_are_reported_at_once_in_order(reject: Reject) -> None:
    error = reject(
        """\
name: 12
engine: sprak
targets: {index: {type: lnace, uri: x}}
entities:
  Document:
    source: {type: files, path: docs}
    chunk: {size: 100, overlap: 100}
    embed: {type: hasing}
    limits: {max_document_bytes: 12XB}
    buckets: 5000
"""
    )
    assert [(each.line, each.path) for each in error.problems] == [
        (1, "name"),
        (2, "engine"),
        (3, "targets.index.type"),
        (7, "entities.Document.chunk.overlap"),
        (8, "entities.Document.embed.type"),
        (9, "entities.Document.limits.max_document_bytes"),
        (10, "entities.Document.buckets"),
    ]
    text = str(error)
    assert "allowed: auto, inline, spark (did you mean spark?)" in text
    allowed = "hashing, static, openai, cohere, voyage, sentence-transformers, fastembed, python"
    assert f"found 'hasing'; allowed: {allowed} (did you mean hashing?)" in text
    assert "must be at most 1024; found 5000" in text


def test_missing_settings_name_the_place_they_belong(reject: Reject) -> None:
    error = reject("name: x\ntargets: {index: {type: lance}}\nentities:\n  D: {}\n")
    assert [(each.line, str(each)) for each in error.problems] == [
        (2, "targets.index.uri: is missing"),
        (4, "entities.D.source: is missing"),
    ]


def test_a_missing_type_lists_the_types(reject: Reject) -> None:
    error = reject(BASE.replace("type: files, ", "") + "    embed: {dimensions: 3}\n")
    assert [str(each) for each in error.problems] == [
        "entities.Document.source.type: is missing; allowed: files, feed, kafka, python, spark, clickhouse, delta, "
        "iceberg",
        "entities.Document.embed.type: is missing; allowed: hashing, static, openai, cohere, voyage, "
        "sentence-transformers, fastembed, python",
    ]


@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("{type: postgres, uri: 'postgresql://me@h/d'}", "16,000"),
        ("{type: opensearch, uri: 'http://h:9200'}", "16,000"),
        ("{type: milvus, uri: 'http://h:19530'}", "32,768"),
    ],
)
def test_vectors_that_are_too_long_for_the_target_are_told_with_their_line(
    reject: Reject, target: str, most: str
) -> None:
    declared = "    source: {type: files, path: docs}\n    embed: {type: hashing, dimensions: 40000}\n"
    error = reject(f"name: x\ntargets:\n  index: {target}\nentities:\n  D:\n{declared}")
    (told,) = error.problems
    assert told.line == 7
    assert str(told).startswith("entities.D.embed.dimensions: the target index (")
    assert f"vectors of at most {most} dimensions" in str(told)


def test_an_unknown_target_lists_the_targets(reject: Reject) -> None:
    error = reject(BASE.replace("  index:", "  other: {type: lance, uri: y}\n  index:") + "    target: indx\n")
    assert str(error.problems[0]) == (
        "entities.Document.target: no such target; found 'indx'; allowed: other, index (did you mean index?)"
    )
    assert error.problems[0].line == 8


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            "target: {type: lance}",
            "target: must be the name of a target that is declared under `targets`; found a mapping",
        ),
        ("target: [index]", "target: must be the name of a target that is declared under `targets`; found a list"),
        ("targets: {index: y}", "targets: must be a list of names, each of a target that is declared under `targets`"),
        ("targets: [index, {other: y}]", "targets[1]: must be the name of a target that is declared under `targets`"),
        ("depends_on: [{A: y}]", "depends_on[0]: must be the name of an entity that is declared under `entities`"),
        (
            "changes: {queue: {on: y}}\n    key: id",
            "queue: must be the name of a queue that is declared under `queues`",
        ),
        ("readers: {acl: y}\n    columns: {acl: 'string[]'}", "under `columns`; found a mapping; allowed: acl"),
        ("target: 5", "target: must be text (put it in quotes); found 5"),
    ],
)
def test_what_takes_the_name_of_something_declared_elsewhere_says_so(reject: Reject, setting: str, says: str) -> None:
    base = BASE.replace("type: files", "type: spark") if "changes" in setting else BASE
    (told,) = reject(base + f"    {setting}\n").problems
    assert says in str(told)


@pytest.mark.parametrize(("glob", "setting"), [("[", "include"), ("[z-a]", "include"), ("/", "exclude")])
def test_a_pattern_that_is_no_glob_is_named_with_its_setting_and_line(reject: Reject, glob: str, setting: str) -> None:
    error = reject(BASE.replace("path: docs", f"path: docs, {setting}: ['*.md', '{glob}']"))
    assert f"entities.Document.source.{setting}[1]: is not a glob" in str(error.problems[0])
    assert error.problems[0].line


def test_more_than_one_target_must_be_chosen_from(reject: Reject) -> None:
    error = reject(BASE.replace("  index:", "  other: {type: lance, uri: y}\n  index:"))
    assert str(error.problems[0]).endswith("must name a target, because the project has several; allowed: other, index")


def test_a_value_of_the_wrong_type_is_answered_with_the_expected_type(reject: Reject) -> None:
    assert "must be a mapping" in reject("- a\n").what
    assert "must be a mapping" in reject(BASE.replace("{type: files, path: docs}", "docs")).what
    assert "must be a mapping (lines of `key: value`); found nothing" in reject("name: x\ntargets:\nentities:\n").what
    assert "is empty" in reject("# nothing\n").what


def test_a_long_value_is_cut(reject: Reject) -> None:
    assert len(reject(BASE + f"    buckets: {'x' * 1000}\n").what) < 200


def test_a_duplicate_key_names_both_lines(reject: Reject) -> None:
    error = reject(BASE + "  Document:\n    source: {type: files, path: more}\n")
    assert str(error.problems[0]) == "entities.Document: duplicate key 'Document': also on line 5"
    assert error.problems[0].line == 7


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a:\n\tb: 1\n", 2, "a tab where YAML wants spaces"),
        ("a: [\n", 2, "not valid YAML"),
        ("a: b\n---\nc: d\n", 2, "a second document"),
        ("a: &x [*x]\n", 1, "alias that contains itself"),
        ("a: !!python/object/apply:os.getcwd []\n", 1, "a tag"),
        ("a: !secret x\n", 1, "a tag"),
        ("a: 1\nb: \x01\n", 2, "a character that YAML does not allow"),
        ("[a]: 1\n", 1, "a key must be plain text"),
        ("a: " + "[" * 1500, 1, "nested too deeply"),
        ("a: ${X\n", 1, "malformed"),
        ("a: ${1X}\n", 1, "malformed"),
    ],
)
def test_broken_yaml_is_one_clear_line(reject: Reject, text: str, line: int, message: str) -> None:
    error = reject(text)
    assert (len(error.problems), error.problems[0].line) == (1, line)
    assert message in error.what
    assert "\n" not in error.what


def test_a_brace_that_is_not_closed_is_named_with_its_line(reject: Reject) -> None:
    error = reject("name: x\nchunk: {size: 8\n# more\n\n")
    assert error.problems[0].line == 5
    assert error.hint == "Close the { or [ that is open in line 2."


def test_a_variable_inside_braces_asks_for_quotes(reject: Reject) -> None:
    assert "in quotes" in str(reject("name: x\ntargets: {index: {type: lance, uri: ${PLACE}}}\n"))


def test_words_that_yaml_1_1_takes_for_booleans_stay_words(load: Load) -> None:
    project = load(BASE.replace("my-project", "no").replace("index:", "on:").replace("  Document", "  yes"))
    assert (project.name, list(project.targets), list(project.entities)) == ("no", ["on"], ["yes"])


def test_numbers_are_not_octal_or_sexagesimal_and_dates_are_text(load: Load) -> None:
    project = load(BASE + "spark: {config: {a: 010, b: 1:30, c: 2026-01-01, d: 1_000, e: 1e3}}\n")
    assert project.spark.config == {"a": "010", "b": "1:30", "c": "2026-01-01", "d": "1_000", "e": "1000.0"}


def test_an_unknown_key_where_a_text_may_stand_too_is_told_like_any_other(reject: Reject) -> None:
    text = BASE + "    columns: {team: {type: string, frm: front_matter}}\n"
    assert "columns.team.frm: unknown key (did you mean from?); allowed: type, from, on_wrong" in str(reject(text))


@pytest.mark.parametrize("name", ["ctid", "xmax", "TableOID", "in", "Like", "null", "between", "iso"])
def test_a_column_is_not_called_what_a_target_cannot_call_one(load: Load, reject: Reject, name: str) -> None:
    said = reject(BASE + f"    columns: {{'{name}': string, other: int}}\n")
    assert f"columns.{name}: is a reserved word of filters or of PostgreSQL" in str(said)
    assert said.problems[0].line == 7
    load(BASE + f"    columns: {{{name}_of: string}}\n")


def test_a_merge_key_shares_settings_between_entities(load: Load, reject: Reject) -> None:
    text = (
        BASE.replace("Document:", "Document: &shared") + "    buckets: 4\n  More:\n    <<: *shared\n    priority: 7\n"
    )
    loaded = load(text)
    more = documents(loaded, "More")
    assert (more.buckets, more.priority, files_as_declared(loaded, "More").path) == (4, 7, ("docs",))
    assert reject(text + "    prioritty: 8\n").problems[0].line == 11


def test_variables_are_filled_in_after_parsing(load: Load) -> None:
    text = BASE.replace("my-project", "${NAME:-fallback}").replace(
        "path: docs", 'path: ["${A}-${B:-b}", "$${A}", "$A"]'
    )
    project = load(text + '    buckets: "${BUCKETS}"\n', {"A": "x: [#", "B": "", "BUCKETS": "8"})
    assert project.name == "fallback"
    assert files_as_declared(project).path == ("x: [#-b", "${A}", "$A")
    assert documents(project).buckets == 8


def test_a_variable_in_a_comment_is_not_needed(load: Load) -> None:
    assert load("# ${NOT_SET}\n" + BASE).name == "my-project"


def test_a_missing_variable_is_named_with_its_line(reject: Reject) -> None:
    error = reject(BASE.replace("docs", '"${DOCS_FOLDER}"'))
    assert str(error.problems[0]) == "entities.Document.source.path: the environment variable DOCS_FOLDER is not set"
    assert error.problems[0].line == 6


def test_values_from_the_environment_are_never_shown(reject: Reject) -> None:
    names = ("NAME", "LEDGER", "ENGINE", "TYPE", "SIZE", "URL", "TARGET", "TRANSFORM", "MASTER")
    environment = {name: f"hunter2 {name}" for name in names}
    error = reject(
        """\
name: ${NAME}
ledger: ${LEDGER}
engine: ${ENGINE}
spark: {master: "${MASTER}", remote: "${MASTER}"}
targets: {index: {type: "${TYPE}", uri: x}}
entities:
  A:
    source: {type: files, path: docs}
    limits: {max_line_bytes: "${SIZE}"}
    buckets: ${SIZE}
    embed: {type: openai, url: "${URL}", model: x, dimensions: "${SIZE}"}
    transform: ${TRANSFORM}
  B:
    source: {type: "${TYPE}", path: docs}
    embed: {type: "${TYPE}"}
""",
        environment,
    )
    assert len(error.problems) == 12
    assert "hunter2" not in str(error)
    assert "${NAME}" in str(error)
    unknown_target = reject(BASE + "    target: ${TARGET}\n", environment)
    assert "hunter2" not in str(unknown_target)
    assert "${TARGET}" in str(unknown_target)


def test_secrets_written_into_the_file_are_not_shown_either(reject: Reject) -> None:
    error = reject(
        BASE.replace("uri: .instep/index", "uri: x, storage_options: {key: [hunter2]}").replace(
            "name: my-project", "name: x\nledger: hunter2"
        )
        + "    embed: {type: openai, model: m, dimensions: 3, api_key: 1234567}\n"
    )
    assert [each.path for each in error.problems] == [
        "ledger",
        "targets.index.storage_options.key",
        "entities.Document.embed.api_key",
    ]
    assert "hunter2" not in str(error)
    assert "1234567" not in str(error)


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        ("recall@10: 98 of served", "recall@10: must be above 0, and at most 1 or 100%; found '98 of served'"),
        ("recall@10: 98% of it", "or a share such as 0.98 of served or 98% of served; found '98% of it'"),
        ("recall@10: yes", "must be a number such as 0.3 or 30%"),
        ("mrr: [0.3]", "mrr: must be a number such as 0.3 or 30%"),
        ("precision@10: 0.3", "precision@10: must be ndcg@k, recall@k (k from 1 to 100) or mrr; found 0.3"),
    ],
)
def test_what_a_promotion_cannot_demand_is_told_once_with_its_line(reject: Reject, demand: str, said: str) -> None:
    promotion = f"    promotion:\n      queries: judged.jsonl\n      at_least:\n        {demand}\n"
    (problem,) = reject(BASE + promotion).problems
    assert said in problem.message or said in str(problem)
    assert problem.line == len((BASE + promotion).splitlines())


def test_aliases_that_make_a_small_file_fill_the_memory_are_refused(reject: Reject) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 10)}]" for each in range(1, 6)]
    assert "aliases expand to more than 10" in str(reject("\n".join(lines)))
